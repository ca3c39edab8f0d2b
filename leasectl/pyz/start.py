"""The archive's ``__main__``: check the Python version, unpack, start.

At its first start the archive unpacks itself into a private folder; from then on it runs from
there. Python compiles this file anew at every start, and importing anything from the archive reads
all of it, so this says only what the second start needs; `leasectl.pyz.unpack` has the rest.
"""

import os
import signal
import stat
import sys

# As in `leasectl.__main__`: no traceback for a Ctrl-C in between.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# A hash of everything in the archive, which scripts/build-pyz fills in.
CONTENT = ""


def main() -> None:
    """Run the command line, from the unpacked folder if there can be one."""
    if sys.version_info < (3, 9):  # noqa: UP036 (nothing has checked what runs this)
        sys.exit(f"leasectl: needs Python 3.9 or newer; this is {sys.version.split()[0]}")
    sys.pycache_prefix = None  # what was compiled lies beside its source
    own_modules_only()
    archive = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = code_folder(archive)
    from leasectl.__main__ import main as run

    run()


def own_modules_only() -> None:
    """Let nothing be imported from PYTHONPATH, nor from what else is installed.

    A child of `leasectl run` still gets PYTHONPATH as it is.
    """
    library = os.path.dirname(os.__file__)
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    foreign = [_absolute(path) for path in named if not path.startswith(library)]
    sys.path[1:] = [
        path
        for path in sys.path[1:]
        if path not in foreign and not path.endswith(("site-packages", "dist-packages"))
    ]


def _absolute(path: str) -> str:
    """The same path from the root; as it is where the working directory is gone."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def code_folder(archive: str) -> str:
    """Find what to import leasectl from: the unpacked folder; else the archive, which is slower.

    The folder is one for each boot, as nobody can tell what a crash of the machine left of files
    that had just been written. It is complete while the file ``complete`` is in it. Nothing reads
    that file, so whoever cleans /tmp by time of last use takes it along with the first module.
    """
    user = os.geteuid()
    private = os.environ.get("LEASECTL_CODE_DIR") or f"/tmp/leasectl-{user}-code"
    private = _absolute(private)
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read(36).decode()
    except OSError:
        return archive
    tag = f"{sys.implementation.cache_tag}.{sys.flags.optimize}"
    folder = f"{private}/{boot}.{CONTENT}.{tag}"
    try:
        os.lstat(f"{folder}/complete")
        found = os.lstat(private)
        if found.st_uid == user and found.st_mode & 0o170077 == stat.S_IFDIR:
            return folder
    except OSError:
        pass
    from leasectl.pyz.unpack import unpack

    if not unpack(archive, folder):
        return archive
    sys.meta_path.remove(sys.modules["leasectl"].__loader__)  # type: ignore[arg-type]
    for name in [name for name in sys.modules if name.split(".")[0] == "leasectl"]:
        del sys.modules[name]  # they are the archive's
    return folder


if __name__ == "__main__":
    main()
