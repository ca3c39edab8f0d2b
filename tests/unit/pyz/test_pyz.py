"""``leasectl.pyz``: what is in it, and that one file is enough wherever there is a Python."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import io
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from functools import cache
from pathlib import Path
from typing import Callable

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import leasectl
from leasectl.cli.commands.setup import _INIT_LINE
from leasectl.pyz import unpack
from leasectl.pyz.unpack import LEFT_OVER, LOCK_NAME, UNPACKED
from tests.kit.killing import FULL_SIZE
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

ROOT = Path(__file__).parents[3]
WHEELS = ROOT / ".wheels"
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
# Those between are no more other than these two.
TRIED = VERSIONS if FULL_SIZE else (VERSIONS[0], VERSIONS[-1])
# Its wheels are for one Python and machine each.
NOT_PACKED = {"PyYAML"}
AS_ROOT = os.geteuid() == 0


def build(
    output: Path, *, root: Path = ROOT, python: str = sys.executable, umask: int = 0o022
) -> None:
    """Build the archive; without network, if the wheels have been downloaded before."""
    script = [python, str(root / "scripts" / "build-pyz"), "-o", str(output)]
    script += ["--wheels", str(WHEELS)]
    before = os.umask(umask)
    try:
        subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
    finally:
        os.umask(before)


@cache
def found_python(version: str) -> str | None:
    """The path of a Python of that version that really runs, without a virtual environment."""
    show = [f"python{version}", "-c", "import os, sys; print(os.path.realpath(sys.executable))"]
    # pyenv's shim refuses to run a version that isn't chosen, though it is installed.
    return (
        output_of(show)
        or output_of(show, PYENV_VERSION=output_of(["pyenv", "latest", version]))
        or None
    )


def output_of(argv: list[str], **env: str) -> str:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            argv, text=True, stderr=subprocess.DEVNULL, env={**os.environ, **env}
        ).strip()
    return ""


OWN_PYTHON = os.path.realpath(sys.executable)


@dataclass
class Pyz(Cli):
    """Commands run by the archive, with folders of their own for state and code."""

    archive: Path = Path()
    python: str = OWN_PYTHON

    def __post_init__(self) -> None:
        super().__post_init__()
        self.env["LEASECTL_CODE_DIR"] = str(self.private)
        self.env["HOME"] = "/nonexistent"

    def command(self, *args: str) -> list[str]:
        return [self.python, str(self.archive), *args]

    @property
    def private(self) -> Path:
        return self.cwd / "code"

    @property
    def folder(self) -> Path:
        """The one folder that was unpacked."""
        (folder,) = self.unpacked()
        return folder

    def unpacked(self) -> list[Path]:
        """All that is in the private folder beside its lock."""
        return [path for path in self.private.iterdir() if path.name != LOCK_NAME]

    def make_private(self) -> None:
        self.private.mkdir(mode=0o700)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pyz")
    folder.chmod(0o755)  # for other users, too
    build(folder / "leasectl.pyz")
    return folder / "leasectl.pyz"


@pytest.fixture
def pyz(archive: Path, state_dir: Path, tmp_path: Path) -> Iterator[Pyz]:
    pyz = Pyz(state_dir, tmp_path, archive=archive)
    yield pyz
    pyz.close()


@pytest.fixture(scope="session")
def started_before(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> StartedBefore:
    """Gives a command what a first start leaves, which takes longer than most commands do."""
    made: dict[str, Path] = {}

    def start(pyz: Pyz) -> None:
        if pyz.python not in made:
            folder = tmp_path_factory.mktemp("started")
            once = Pyz(folder / "state", folder, archive=archive, python=pyz.python)
            once.ok("--version", PYTHONDONTWRITEBYTECODE="1")
            made[pyz.python] = once.private
        shutil.copytree(made[pyz.python], pyz.private)

    return start


@pytest.fixture(scope="session")
def files(archive: Path) -> dict[str, bytes]:
    """All that is packed, as tools of others read it."""
    return read_files(archive)


def read_files(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as outer:
        inner = io.BytesIO(outer.read("modules.tar"))
    files = {}
    with tarfile.open(fileobj=inner) as source:
        for member in source:
            assert member.isreg() and member.name not in files
            content = source.extractfile(member)
            assert content
            files[member.name] = content.read()
    return files


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """What would show that anything in a folder was written."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (each.st_mtime_ns, each.st_ino) for path, each in found.items()}


StartedBefore = Callable[[Pyz], None]
Files = dict[str, bytes]


class TestWhatIsInIt:
    def test_the_same_source_gives_the_same_bytes(self, archive: Path, tmp_path: Path) -> None:
        digests = {hashlib.sha256(archive.read_bytes()).hexdigest()}
        elsewhere = tmp_path / "else where"
        for name in ("leasectl", "scripts"):
            shutil.copytree(ROOT / name, elsewhere / name, copy_function=shutil.copyfile)
        shutil.copyfile(ROOT / "LICENSE", elsewhere / "LICENSE")
        for version in TRIED if FULL_SIZE else TRIED[:1]:
            output = tmp_path / version / "renamed"
            python = found_python(version)
            if python is None:
                continue
            build(output, root=elsewhere, python=python, umask=0o077)
            assert stat.S_IMODE(output.stat().st_mode) == 0o755
            digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
        assert len(digests) == 1

    def test_it_fits_into_a_config_map_beside_client_sh(self, archive: Path) -> None:
        assert archive.stat().st_size < 1_000_000
        client = (ROOT / "scripts" / "client.sh").stat().st_size
        assert archive.stat().st_size + client < 1 << 20

    def test_it_has_every_file_of_the_package_that_runs(self, files: Files) -> None:
        package = Path(leasectl.__file__).parent
        there = [p for p in package.rglob("*") if p.suffix in {".py", ".bash"}]
        wanted = {f"leasectl/{path.relative_to(package).as_posix()}" for path in there}
        start = "leasectl/pyz/start.py"  # is __main__.py
        server = {name for name in wanted if name.startswith("leasectl/server/")}
        assert wanted - files.keys() == {start, *server}

    def test_it_says_that_it_cannot_serve(self, pyz: Pyz, started_before: StartedBefore) -> None:
        started_before(pyz)
        finished = pyz("serve")
        assert (finished.code, finished.out) == (64, "")
        assert (
            "serve needs jinja2, starlette and uvicorn, which leasectl.pyz can't use"
            in finished.err
        )

    def test_it_has_all_that_leasectl_depends_on_and_their_licenses(self, files: Files) -> None:
        infos = {name.split("/")[0] for name in files if ".dist-info/" in name}
        metadata = [BytesParser().parsebytes(files[f"{info}/METADATA"]) for info in infos]
        packed = {canonicalize_name(each["Name"]): each["Version"] for each in metadata}
        assert {"leasectl", "click", "filelock", "httpx", "tenacity"} <= packed.keys()
        for each in metadata:
            supported = SpecifierSet(each["Requires-Python"] or "")
            assert all(supported.contains(version) for version in VERSIONS), each["Name"]
            for text in each.get_all("Requires-Dist", []):
                requirement = Requirement(text)
                if any(needed_on(version, requirement) for version in VERSIONS):
                    version = packed[canonicalize_name(requirement.name)]
                    assert requirement.specifier.contains(version), text
        for info in infos:
            mine = [name for name in files if name.startswith(f"{info}/")]
            assert any("LICENSE" in name for name in mine), info

    def test_what_is_packed_of_others_means_the_same_in_the_same_lines(self, files: Files) -> None:
        changed = 0
        for name, original in files_of_wheels():
            if name.endswith(".py") and name in files and not name.startswith("certifi/"):
                assert statements(files[name]) == statements(original), name
                changed += files[name] != original
        assert changed > 80

    def test_whom_to_trust_says_the_machine(self, archive: Path, files: Files) -> None:
        assert [name for name in files if name.startswith("certifi/")] == ["certifi/__init__.py"]
        asked = (
            "import leasectl, certifi, ssl; "
            "print(certifi.where(), ssl.get_default_verify_paths().cafile)"
        )
        environment = {**os.environ, "PYTHONPATH": str(archive)}
        said = subprocess.run(
            [sys.executable, "-S", "-c", asked],
            cwd=archive.parent,  # and not where leasectl's source is
            env=environment,
            capture_output=True,
            text=True,
        )
        first, second = said.stdout.split()
        assert first == second

    def test_its_dependencies_are_in_the_range_of_setup_cfg(self, archive: Path) -> None:
        lock = (ROOT / "scripts" / "pyz-requirements.txt").read_text()
        versions = dict(re.findall(r"^(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}$", lock, re.M))
        config = (ROOT / "setup.cfg").read_text()
        section = config.partition("install_requires =\n")[2].partition("\n\n")[0]
        for requirement in map(Requirement, section.split("\n")):
            if requirement.name in NOT_PACKED:
                assert requirement.name not in versions
                continue
            assert requirement.specifier.contains(versions[requirement.name]), requirement


def files_of_wheels() -> Iterator[tuple[str, bytes]]:
    """Everything in the wheels that are packed."""
    lock = (ROOT / "scripts" / "pyz-requirements.txt").read_text()
    for wheel in WHEELS.glob("*.whl"):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() in lock:
            with zipfile.ZipFile(wheel) as source:
                yield from ((name, source.read(name)) for name in source.namelist())


def statements(source: bytes) -> list[str]:
    """What a module means: its statements and the lines that they are in, but for docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not isinstance(each, ast.Pass)]
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr))]
    lines = [f"{type(node).__name__} {node.lineno}:{node.col_offset}" for node in nodes]
    return [*lines, ast.dump(tree)]


def needed_on(version: str, requirement: Requirement) -> bool:
    here = {"python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate({**here})


@pytest.mark.parametrize("version", TRIED)
class TestOnEveryPython:
    @pytest.fixture(autouse=True)
    def _on(self, pyz: Pyz, version: str) -> None:
        python = found_python(version)
        if python is None:
            pytest.skip(f"no Python {version} on this machine")
        pyz.python = python

    def test_it_takes_holds_and_gives_back_a_lease(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        pyz.ok("pool", "create", "T", "--count", "1")
        handle = pyz.ok("acquire", "-t", "T").strip()
        assert pyz.ok("cat", "--handle", handle) == "T--00\n"
        assert pyz.ok("release", "--handle", handle) == "T--00\n"
        assert pyz.ok("run", "-t", "T", "--", "printenv", "LEASECTL_NAMES") == "T--00\n"

    def test_the_first_start_compiles_all_and_the_second_writes_nothing(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        for source in pyz.folder.rglob("*.py"):
            tag = pyz.folder.name.split(".")[2]
            assert (source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc").exists()
        before = snapshot(pyz.private)
        pyz.pool("T")
        pyz.ok("acquire", "-t", "T", PYTHONDONTWRITEBYTECODE=None)
        assert snapshot(pyz.private) == before

    def test_where_it_cant_be_unpacked_all_is_imported_from_memory(self, pyz: Pyz) -> None:
        shell = (ROOT / "leasectl" / "shell" / "leasectl.bash").read_text()
        printed = pyz.ok("init", "bash", LEASECTL_CODE_DIR="/proc/leasectl")
        assert printed.replace(_INIT_LINE, "") == shell
        # As a keeper is started by such a one.
        as_module = [pyz.python, "-m", "leasectl", "--version"]
        finished = pyz.spawn(as_module, PYTHONPATH=str(pyz.archive)).finish()
        assert finished == Finished(0, f"leasectl {leasectl.__version__}\n", "")

    def test_it_applies_pools_from_json_and_says_that_it_reads_no_yaml(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        path = pyz.cwd / "pools"
        path.write_text('{"resources": [{"type": "T", "names": ["a"]}]}')
        pyz.ok("pool", "apply", "-f", str(path))
        assert pyz.query("SELECT name FROM resource") == [("a",)]
        path.write_text("resources: [{type: T, names: [b]}]")
        finished = pyz("pool", "apply", "-f", str(path))
        assert (finished.code, finished.out, finished.err.count("\n")) == (64, "", 1)
        assert "PyYAML" in finished.err and "JSON" in finished.err
        assert pyz.query("SELECT name FROM resource") == [("a",)]

    def test_isolated_mode_and_hostile_variables_change_nothing(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        pyz.pool("T")
        library = output_of([pyz.python, "-c", "import os; print(os.path.dirname(os.__file__))"])
        pyz.env.update(
            PYTHONPATH=f"{hostile_modules(pyz)}:{library}/lib-dynload:{library}::relative",
            PYTHONSTARTUP=str(pyz.cwd / "startup.py"),
            PYTHONPYCACHEPREFIX=str(pyz.cwd / "elsewhere"),
        )
        for _ in range(2):
            pyz.ok("acquire", "-t", "T", "--release-after", "10m", PYTHONDONTWRITEBYTECODE=None)
        # What was compiled at the first start was used, and not made again elsewhere.
        assert list((pyz.cwd / "elsewhere").rglob("acquire.*.pyc")) == []
        isolated = [pyz.python, "-I", str(pyz.archive), "release", "--all"]
        released = pyz.spawn(isolated).finish()
        assert (sorted(released.out.split()), released.err) == (["T--00", "T--01"], "")
        # Who runs under a lease has nothing to do with all that.
        assert (
            pyz.ok("run", "-t", "T", "--", "printenv", "PYTHONPATH").strip()
            == (pyz.env["PYTHONPATH"])
        )


def hostile_modules(pyz: Pyz) -> Path:
    """A folder with modules that must not be imported, except those that Python itself starts."""
    hostile = pyz.cwd / "hostile"
    hostile.mkdir()
    loaded = pyz.spawn([pyz.python, "-c", "import sys; print(*sys.modules)"]).finish().out.split()
    for name in ("click", "leasectl", "httpx", "filelock", "sqlite3", "json", "fcntl", "zipfile"):
        if name not in loaded:
            (hostile / f"{name}.py").write_text("raise SystemExit('hostile')")
    assert (hostile / "click.py").exists()
    return hostile


class TestWhereItLies:
    @pytest.mark.parametrize("name", ["leasectl", "a b/it's ünï.pyz"])
    def test_it_runs_under_any_name_and_as_an_executable(
        self, pyz: Pyz, started_before: StartedBefore, name: str
    ) -> None:
        started_before(pyz)
        path = pyz.cwd / name
        path.parent.mkdir(exist_ok=True)
        shutil.copy(pyz.archive, path)
        pyz.env["PATH"] = f"{Path(sys.executable).parent}:{pyz.env['PATH']}"
        for argv in ([str(path)], [f"./{name}"]):
            finished = pyz.spawn([*argv, "--version"]).finish()
            assert finished == Finished(0, f"leasectl {leasectl.__version__}\n", "")

    def test_it_runs_through_a_symbolic_link_and_from_a_folder_without_write_access(
        self, pyz: Pyz
    ) -> None:
        mounted = pyz.cwd / "mounted"
        mounted.mkdir()
        shutil.copyfile(pyz.archive, mounted / "..data")
        (mounted / "leasectl.pyz").symlink_to("..data")
        mounted.chmod(0o555)
        pyz.archive = mounted / "leasectl.pyz"
        pyz.ok("--version")
        assert sorted(path.name for path in mounted.iterdir()) == ["..data", "leasectl.pyz"]

    @pytest.mark.parametrize("folder", [None, "code"])
    def test_it_runs_where_the_working_directory_is_gone(
        self, pyz: Pyz, started_before: StartedBefore, folder: str | None
    ) -> None:
        """As where a step's EXIT trap removes that, and then releases."""
        started_before(pyz)
        pyz.pool("T")
        script = 'mkdir gone && cd gone && rmdir ../gone && "$@"'
        argv = ["sh", "-c", script, "-", pyz.python, str(pyz.archive), "acquire", "-q", "-t", "T"]
        finished = pyz.spawn(argv, LEASECTL_CODE_DIR=folder).finish()
        assert (finished.code, finished.err) == (0, "")
        assert pyz.ok("release", "--all") == "T--00\n"

    def test_messages_and_completion_are_those_of_the_installed_command(
        self, pyz: Pyz, cli: Cli, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        for args in (["acquire", "--count", "x"], ["nonsense"], ["--help"], ["run", "--help"]):
            assert pyz(*args) == cli(*args)
        for args in (["completion", "bash"], ["init", "bash"]):
            assert pyz.ok(*args) == cli.ok(*args)
        words = {"_LEASECTL_COMPLETE": "bash_complete", "COMP_WORDS": "leasectl acq"}
        assert pyz(COMP_CWORD="1", **words) == cli(COMP_CWORD="1", **words)

    def test_the_keeper_outlives_the_archive(
        self, pyz: Pyz, tmp_path: Path, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        pyz.archive = Path(shutil.copy(pyz.archive, tmp_path / "going.pyz"))
        pyz.pool("T")
        pyz.ok("acquire", "-t", "T", "--release-after", "2s")
        (keeper,) = eventually(pyz.keepers)
        environ = f"/proc/{keeper}/environ"
        eventually(lambda: f"PYTHONPATH={pyz.folder}\0".encode() in Path(environ).read_bytes())
        pyz.archive.unlink()
        eventually(lambda: pyz.held() == {})
        assert pyz.keepers() in ([keeper], [])


class TestTheUnpackedFolder:
    def test_many_first_starts_at_once_make_one(self, pyz: Pyz) -> None:
        started = [pyz.start("--version") for _ in range(32 if FULL_SIZE else 12)]
        for each in started:
            finished = each.finish()
            assert (finished.code, finished.err) == (0, "")
        assert UNPACKED.fullmatch(pyz.folder.name)

    def test_it_is_private_whatever_the_umask(self, pyz: Pyz) -> None:
        for umask in ("0777", "0000"):
            shutil.rmtree(pyz.private, ignore_errors=True)
            shell = ["bash", "-c", f'umask {umask}; exec "$@"', "bash", *pyz.command("--version")]
            assert pyz.spawn(shell).finish().code == 0
            assert stat.S_IMODE(pyz.private.stat().st_mode) == 0o700
            modes = {stat.S_IMODE(path.stat().st_mode) for path in pyz.private.rglob("*")}
            assert modes == {0o700, 0o600}

    def test_it_is_another_for_other_content(
        self, pyz: Pyz, tmp_path: Path, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        first = pyz.folder
        copy = tmp_path / "changed"
        for name in ("leasectl", "scripts"):
            shutil.copytree(ROOT / name, copy / name)
        shutil.copyfile(ROOT / "LICENSE", copy / "LICENSE")
        version = copy / "leasectl" / "__init__.py"
        version.write_text(version.read_text().replace(leasectl.__version__, "9.8.7"))
        pyz.archive = tmp_path / "changed.pyz"
        build(pyz.archive, root=copy)
        assert pyz.ok("--version") == "leasectl 9.8.7\n"
        # A keeper of the other version may still run from there.
        assert first.exists() and len(pyz.unpacked()) == 2

    def test_a_start_that_is_killed_leaves_nothing_that_is_taken_for_whole(self, pyz: Pyz) -> None:
        for milliseconds in (60, 120, 180):
            started = pyz.start("--version")
            time.sleep(milliseconds / 1000)
            started.kill()
        assert pyz.ok("--version") == f"leasectl {leasectl.__version__}\n"
        assert UNPACKED.fullmatch(pyz.folder.name)

    def test_an_interrupted_start_ends_by_the_signal_without_a_traceback(self, pyz: Pyz) -> None:
        started = pyz.start("--version")
        eventually(lambda: list(pyz.private.glob("new.*")))
        started.signal(signal.SIGINT)
        assert started.finish() == Finished(-signal.SIGINT, "", "")

    def test_one_that_lost_files_to_a_cleaner_of_tmp_is_made_anew(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        shutil.rmtree(pyz.folder / "leasectl" / "cli")
        (pyz.folder / "complete").unlink()
        pyz.ok("--version")
        assert (pyz.folder / "leasectl" / "cli" / "app.py").exists()

    def test_what_nobody_uses_goes_and_nothing_else_does(self, pyz: Pyz) -> None:
        pyz.make_private()
        earlier_boot = f"{'0' * 8}-0000-0000-0000-{'0' * 12}.{'a' * 32}.cpython-39.0"
        unused = {earlier_boot, f"new.{'0' * 16}", f"old.{'f' * 16}"}
        foreign = {"new.project", ".ssh", "old", f"{earlier_boot}.orig"}
        for name in unused | foreign:
            (pyz.private / name / "x").mkdir(parents=True)
            assert bool(UNPACKED.fullmatch(name) or LEFT_OVER.fullmatch(name)) == (name in unused)
        pyz.ok("--version")
        assert foreign < {path.name for path in pyz.private.iterdir()}
        assert unused.isdisjoint(path.name for path in pyz.private.iterdir())

    def test_a_folder_that_others_could_have_changed_is_not_used(
        self, pyz: Pyz, started_before: StartedBefore
    ) -> None:
        started_before(pyz)
        pyz.private.chmod(0o770)
        assert warning(pyz) == (
            f"leasectl: {pyz.private}, where this archive is to be unpacked, is open to others "
            "(mode 0770), who may have changed what is in it; remove it or name another folder "
            "in LEASECTL_CODE_DIR; running from the archive, which is slower\n"
        )

    def test_a_symbolic_link_and_a_file_are_not_used(self, pyz: Pyz) -> None:
        elsewhere = pyz.cwd / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        pyz.private.symlink_to(elsewhere)
        assert "is a symbolic link" in warning(pyz)
        assert list(elsewhere.iterdir()) == []
        pyz.private.unlink()
        pyz.private.touch()
        assert "is not a directory" in warning(pyz)

    def test_it_is_used_from_the_first_start_on(self, pyz: Pyz) -> None:
        argv = [pyz.python, "-v", str(pyz.archive), "--version"]
        finished = pyz.spawn(argv).finish()
        (loader,) = re.findall(r"^import 'leasectl.cli.app' # <(\S+) ", finished.err, re.M)
        assert loader.endswith(".SourceFileLoader")
        assert re.search(rf"^# .*'?{re.escape(str(pyz.private))}/.*/cli/", finished.err, re.M)
        finished = pyz.spawn(argv, LEASECTL_CODE_DIR="/proc/leasectl").finish()
        (loader,) = re.findall(r"^import 'leasectl.cli.app' # <(\S+) ", finished.err, re.M)
        assert loader.endswith(".MemoryImporter")

    def test_what_is_damaged_is_not_unpacked(self, pyz: Pyz, tmp_path: Path) -> None:
        content = bytearray(pyz.archive.read_bytes())
        with zipfile.ZipFile(pyz.archive) as source:
            content[source.getinfo("modules.tar").header_offset + 14] ^= 1  # of its CRC-32
            listed = content.rindex(b"PK\1\2")
        content[listed + 16] ^= 1
        damaged = tmp_path / "damaged.pyz"
        damaged.write_bytes(content)
        assert not unpack.unpack(str(damaged), str(pyz.private / "folder"))
        assert list(pyz.private.iterdir()) == []

    def test_where_the_disk_fills_up_leasectl_runs_from_the_archive(self, pyz: Pyz) -> None:
        # A limit of 100 KiB a file fails half-way, as a full disk does.
        limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *pyz.command("--version")]
        finished = pyz.spawn(limited).finish()
        assert finished == Finished(0, f"leasectl {leasectl.__version__}\n", "")
        assert pyz.unpacked() == []

    def test_who_waits_for_a_stuck_first_start_is_not_stuck_for_ever(
        self, pyz: Pyz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pyz.make_private()
        stuck = os.open(pyz.private / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(stuck, fcntl.LOCK_EX)
        monkeypatch.setattr(unpack, "_PATIENCE_SECONDS", 0.1)
        assert not unpack.unpack(str(pyz.archive), str(pyz.private / "folder"))
        os.close(stuck)
        assert unpack.unpack(str(pyz.archive), str(pyz.private / "folder"))


def warning(pyz: Pyz) -> str:
    finished = pyz("--version")
    version = f"leasectl {leasectl.__version__}\n"
    assert (finished.code, finished.out, finished.err.count("\n")) == (0, version, 1)
    return finished.err


# As in a hardened container: nothing but /tmp can be written, there is no network, no home folder
# and no passwd entry, and all processes end with the first.
CONTAINER = """
set -eu
mount --make-rprivate /
mount --bind "$1" /mnt
mount --bind "$2" /srv
mount -t tmpfs -o "size=$3,mode=1777" tmpfs /tmp
mount -o remount,bind,ro /mnt
mount -o remount,bind,ro /srv
mount -o remount,bind,ro /
cd /
user=()
((EUID)) || user=(setpriv --reuid 54321 --regid 54321 --clear-groups --no-new-privs)
echo ready >&2
# LD_LIBRARY_PATH: the library of a Python that was built with one is looked for where that was.
exec env -i HOME=/nonexistent PATH=/usr/bin:/bin LD_LIBRARY_PATH=/srv/lib \\
  "${user[@]}" bash -euc "$4"
"""


class TestInAContainer:
    def container(self, pyz: Pyz, script: str, *, room: str = "64m") -> Finished:
        prefix = Path(pyz.python).parent.parent
        python = f"/srv/bin/{Path(pyz.python).name}"
        script = f'leasectl() {{ {python} /mnt/{pyz.archive.name} "$@"; }}\n{script}'
        unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        unshare += ["--mount-proc"] if AS_ROOT else ["--mount-proc", "--map-root-user"]
        arguments = [str(pyz.archive.parent), str(prefix), room, script]
        try:
            finished = pyz.spawn([*unshare, "bash", "-c", CONTAINER, "bash", *arguments]).finish()
        except FileNotFoundError as error:
            pytest.skip(f"no namespaces here: {error}")
        if not finished.err.startswith("ready\n"):
            pytest.skip(f"no namespaces here: {finished.err}")
        return Finished(finished.code, finished.out, finished.err.partition("\n")[2])

    def test_it_needs_nothing_but_tmp(self, pyz: Pyz) -> None:
        finished = self.container(
            pyz,
            """
            if touch /var/tmp/x 2>/dev/null; then exit 9; fi
            leasectl pool create --quiet T --count 1
            h=$(leasectl acquire --quiet -t T --release-after 1s)
            leasectl cat --handle "$h"
            leasectl acquire -t T -w 10 --quiet >/dev/null
            stat -c '%a %F' /tmp/leasectl-"$UID"-code
            ls /tmp
            """,
        )
        uid = 54321 if AS_ROOT else 0
        listed = f"T--00\n700 directory\nleasectl-{uid}\nleasectl-{uid}-code\n"
        assert finished == Finished(0, listed, "")

    def test_it_leaves_a_small_tmp_to_others(self, pyz: Pyz, files: Files) -> None:
        room = int(3.5 * sum(map(len, files.values())))  # it would just fit
        finished = self.container(
            pyz,
            """
            leasectl pool create --quiet T --count 1
            h=$(leasectl acquire -t T)
            leasectl release --handle "$h"
            find /tmp -path '*-code/*'
            """,
            room=str(room),
        )
        assert finished == Finished(0, "T--00\n", "")
