"""Check the environment, the kernel and the file system."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from leasectl import __version__
from leasectl.backends.kinds import Context, check_url
from leasectl.doctor.findings import ELSEWHERE, Finding, fail, ok, unwritable, warn
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.http.settings import is_readable_by_others
from leasectl.state import shared_leases
from leasectl.system.poll import is_readable
from leasectl.system.process import PIDFD_NEEDS, own_namespaces, this_process
from leasectl.text.wording import counted, printable, printable_url


class Surroundings(NamedTuple):
    """What the environment of the command says.

    Args:
        directory: The state directory.
        context: The backend that was chosen, how to talk to its server, and for whom.
        backend_reason: What chose it.
        environment: All variables.
    """

    directory: str
    context: Context
    backend_reason: str
    environment: Mapping[str, str] = MappingProxyType({})


def backend(around: Surroundings) -> Finding:
    """Which backend was chosen, by what, and is there such a one?"""
    by = "" if around.backend_reason.startswith("the ") else "chosen by "
    what = f"{printable_url(around.context.url, longest=200)}, {by}{around.backend_reason}"
    try:
        check_url(around.context.url)
    except InvalidRequest as error:
        return fail(what, str(error), exit_code=error.exit_code)
    return ok(what)


def lease_proxy(around: Surroundings) -> Finding:
    """Which ``LEASE_PROXY_*`` variables are set, and do they count?"""
    names = sorted(name for name in around.environment if name.startswith("LEASE_PROXY_"))
    if not names:
        return ok("no LEASE_PROXY_* variable is set")
    values = (printable_url(around.environment[name], longest=200) for name in names)
    what = ", ".join(f"{name}={value}" for name, value in zip(names, values))
    if "LEASE_PROXY_SERVER_URL" in names and around.backend_reason != "LEASE_PROXY_SERVER_URL":
        return warn(
            f"{what}; not used, because of {around.backend_reason}",
            "leave out --backend and unset LEASECTL_BACKEND to use the lease proxy",
        )
    return ok(what)


def secret_files(around: Surroundings) -> Finding:
    """Can other users read the files with secrets that the environment names?"""
    settings = around.context.settings
    password_file = around.environment.get("LEASECTL_BOSKOS_PASSWORD_FILE")
    files = (settings.token_file, settings.user_file, settings.key_file, password_file)
    exposed = [each for each in files if each and is_readable_by_others(each)]
    if not exposed:
        is_any = any(files)
        what = "other users can't read the files that variables name"
        return ok(what if is_any else "no variable names a secret file")
    shown = [printable(each, longest=500) for each in exposed]
    return warn(f"other users can read {', '.join(shown)}", f"run: chmod 600 {' '.join(shown)}")


def shared_dir(directory: str | None) -> Finding:
    """``SHARED_DIR``, where scope ``test`` lists its names."""
    if directory is None:
        return ok("not set; only --scope test needs it")
    try:
        names = shared_leases.listed(directory)
    except LeaseError as error:
        what, _, advice = str(error).partition("; ")
        return fail(what, advice or "correct it", exit_code=error.exit_code)
    if not os.access(directory, os.W_OK):
        return warn(
            f"{directory} can't be written: --scope test won't work",
            "make it writable, or use --scope step",
        )
    return ok(f"{directory}; its file leases lists {counted(len(names), 'name')}")


LEAST_FREE_BYTES = 1 << 20
FEW_FREE_BYTES = 32 << 20
_CHILD_SECONDS = 5.0
_MANY_MACHINES = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre"),
    *("nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
)


def version() -> Finding:
    """leasectl and the Python that it runs on."""
    python = ".".join(map(str, sys.version_info[:3]))
    what = f"leasectl {__version__} on Python {python} ({sys.executable or 'path not known'})"
    if not sys.executable:
        return fail(what, "run leasectl with a Python that knows its own path")
    return ok(what)


def proc() -> Finding:
    """/proc, which says whether a process is still the same one."""
    try:
        process = this_process()
    except (OSError, LeaseError, ValueError) as error:
        return fail(f"can't be read: {error}", "mount /proc in this container")
    if "hidepid=" in _mount_options("/proc"):
        return warn(
            "mounted with hidepid: processes of other users can't be seen",
            "use guards of your own user only",
        )
    pids, times = own_namespaces()
    own = " and a time namespace of its own" if times else ""
    return ok(f"readable; pid {process.pid} in pid namespace {pids}{own}")


def pidfd(pidfd_open: Callable[[int], int] | None) -> Finding:
    """pidfd_open(2), which tells of a process's end."""
    if pidfd_open is None:
        return fail("this Python has no pidfd_open", "use another Python")
    try:
        told = _notices_a_death(pidfd_open)
    except OSError as error:
        return fail(
            f"pidfd_open(2) doesn't work: {error.strerror}",
            PIDFD_NEEDS,
        )
    if not told:
        return fail("the kernel doesn't report the end of a process", "use another kernel")
    return ok("the kernel reports the end of a process at once")


def _notices_a_death(pidfd_open: Callable[[int], int]) -> bool:
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_fd)
        os.read(read_fd, 1)
        os._exit(0)
    os.close(read_fd)
    try:
        fd = pidfd_open(child)
        try:
            too_early = is_readable(fd, 0)
            os.close(write_fd)
            write_fd = -1
            return not too_early and is_readable(fd, _CHILD_SECONDS)
        finally:
            os.close(fd)
    finally:
        if write_fd >= 0:
            os.close(write_fd)
        os.waitpid(child, 0)


def file_system(directory: str) -> Finding:
    """Which file system it is on, and whether there is room."""
    where = _nearest(directory)
    try:
        found = os.statvfs(where)
    except OSError as error:
        return unwritable(f"{where}: {error.strerror}", ELSEWHERE)
    kind = _file_system_type(where)
    free = found.f_bavail * found.f_frsize
    what = f"{kind}, {free >> 20} MiB free"
    if found.f_flag & os.ST_RDONLY:
        return unwritable(f"{kind}, read-only", ELSEWHERE)
    # Some file systems make inodes as they are needed, and say 0 of both.
    if free < LEAST_FREE_BYTES or (found.f_files and not found.f_favail):
        return unwritable(f"{what}: full", f"free some space, or {ELSEWHERE}")
    if kind in _MANY_MACHINES:
        return warn(
            f"{what}; a network file system",
            f"a state directory belongs to one machine: {ELSEWHERE}",
        )
    if free < FEW_FREE_BYTES:
        return warn(what, f"free some space, or {ELSEWHERE}")
    return ok(what)


def file_locks(directory: str, flock: Callable[[int, int], None]) -> Finding:
    """Does a lock that one process holds really keep another out?"""
    where = _nearest(directory)
    try:
        excludes = _excludes(where, flock)
    except OSError as error:
        return unwritable(f"flock(2) fails in {where}: {error.strerror}", ELSEWHERE)
    if not excludes:
        return unwritable(
            f"flock(2) doesn't exclude in {where}: two processes held one lock at once",
            f"{ELSEWHERE}, on a local file system",
        )
    return ok("file locks work")


def _excludes(directory: str, flock: Callable[[int, int], None]) -> bool:
    """Lock a file of our own, and have a child try it, first while we hold it and then after."""
    own_fd, path = tempfile.mkstemp(prefix=".leasectl-flock-", dir=directory)
    try:
        flock(own_fd, fcntl.LOCK_EX)
        got_while_held = _child_gets(path, flock)
        flock(own_fd, fcntl.LOCK_UN)
        got_when_free = _child_gets(path, flock)
    finally:
        os.close(own_fd)
        os.unlink(path)
    return got_when_free and not got_while_held


def _child_gets(path: str, flock: Callable[[int, int], None]) -> bool:
    child = os.fork()
    if child == 0:
        code = 2
        try:
            # Its own open file description: an inherited one would share our lock.
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                code = 0
            except BlockingIOError:
                code = 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 2
    if code == 2:
        raise OSError(0, "another process can't lock")
    return code == 0


def _nearest(directory: str) -> str:
    """The directory, or the one that it would be made in."""
    return directory if os.path.isdir(directory) else os.path.dirname(directory) or "/"


def _file_system_type(path: str) -> str:
    """The type of the file system that a path is on, from mountinfo; see proc(5)."""
    path = os.path.realpath(path)
    best, kind = "", "unknown"
    for mount_point, each, _ in _mounts():
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        # Of mounts on one another the last counts.
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, each
    return kind


def _mount_options(mount_point: str) -> str:
    return next((options for at, _, options in reversed(_mounts()) if at == mount_point), "")


def _mounts() -> list[tuple[str, str, str]]:
    """Mount point, type and options of each mount."""
    found = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            fields, rest = before.split(), after.split()
            at = fields[4].encode("latin-1", "replace").decode("unicode_escape")
            found.append((at, rest[0], f"{fields[5]},{rest[-1]}"))
    return found
