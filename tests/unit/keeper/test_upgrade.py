"""A keeper of the version before is still running when this one is installed and used."""

from __future__ import annotations

import compileall
import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasectl
from leasectl.model import whole
from leasectl.state import keeper_process
from leasectl.state.database import SCHEMA_VERSION
from tests.kit.invariants import broken_invariants
from tests.kit.sizes import EVERY_KILL
from tests.kit.support import Cli, Started, clean_environment, eventually

# It says what it says on any Python.
pytestmark = pytest.mark.once

# The last commit that wrote schema 2.
BEFORE = "5d7c4bb"
REPOSITORY = Path(__file__).parents[3]
HERE = Path(leasectl.__file__).parent
# Counts from when the state directory is opened; what is imported until then changes nothing.
KILLED = """
import sys
import leasectl.state.migrations
from leasectl.cli.app import main
from leasectl.state.directory import State
from tests.kit import killing

plain = State.open.__func__

def open_and_count(cls, directory, **more):
    killing.kill_at(int(number))
    return plain(cls, directory, **more)

State.open = classmethod(open_and_count)
number = sys.argv.pop(1)
main()
"""
# One command after the other, each a process of its own, in which nothing is left to be loaded.
IN_A_ROW = """
import json, os, sys
from leasectl.cli.app import main

for words in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        sys.argv[1:] = words
        main()
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"failed: {words}")
"""


def git(*args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(REPOSITORY), *args], capture_output=True, check=False)


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the version before in it."""
    if git("cat-file", "-e", f"{BEFORE}^{{commit}}").returncode != 0:
        reason = f"needs commit {BEFORE} of the history, the version before; git fetch --unshallow"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("before")
    archive = git("archive", BEFORE, "leasectl")
    assert archive.returncode == 0, archive.stderr
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder)
    compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.fixture(scope="module")
def this_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this package in it, without what other Pythons have compiled of it."""
    folder = tmp_path_factory.mktemp("this")
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE, folder / "leasectl", symlinks=True, ignore=compiled)
    compileall.compile_dir(folder, quiet=1)
    return folder


class Machine:
    """A state directory, and installations of leasectl in folders.

    Args:
        cli: Of the state directory.
        tmp_path: Where installations are made.
        version_before: A folder with that, compiled.
        this_version: Likewise.
    """

    def __init__(self, cli: Cli, tmp_path: Path, version_before: Path, this_version: Path) -> None:
        self._cli = cli
        self._tmp_path = tmp_path
        self._version_before = version_before
        self._this_version = this_version
        self.made: list[Cli] = []

    def install_before(self, name: str) -> Cli:
        """Install the version before."""
        return self._install(self._version_before, name)

    def install(self, name: str) -> Cli:
        """Install this version."""
        return self._install(self._this_version, name)

    def _install(self, version: Path, name: str) -> Cli:
        folder = self._tmp_path / name
        shutil.rmtree(folder, ignore_errors=True)
        # Nobody writes into a file that is there: to link them takes a small part of a copy's time.
        shutil.copytree(version, folder, symlinks=True, copy_function=os.link)
        return self._cli_of(folder)

    def _cli_of(self, folder: Path) -> Cli:
        env = {**clean_environment(), "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
        cli = Cli(self._cli.state_dir, self._cli.cwd, env)
        self.made.append(cli)
        return cli


@pytest.fixture
def machine(
    cli: Cli, tmp_path: Path, version_before: Path, this_version: Path
) -> Iterator[Machine]:
    machine = Machine(cli, tmp_path, version_before, this_version)
    yield machine
    for each in machine.made:
        each.close()


def schema(cli: Cli) -> int:
    ((version,),) = cli.query("PRAGMA user_version")
    assert isinstance(version, int)
    return version


def keeper_log(cli: Cli) -> str:
    path = cli.state_dir / "keeper.log"
    return path.read_text() if path.exists() else ""


def starts(cli: Cli) -> int:
    """How often a keeper, or one that another has become, has begun."""
    return keeper_log(cli).count("] started")


def the_keeper(cli: Cli) -> int:
    (pid,) = eventually(cli.keepers, what="there is a keeper")
    eventually(lambda: f"[{pid}] started" in keeper_log(cli), what="it has started")
    return pid


def the_settled_keeper(cli: Cli) -> int:
    """The pid of the keeper of what is held, which has done a round: it won't say its version."""
    handle = acquire(cli, "--release-after", "0.1")
    eventually(lambda: handle not in cli.held().values(), what="a delayed release happens")
    return the_keeper(cli)


def make_overdue(cli: Cli) -> None:
    """Have everything be due that is to be released later, and the keeper look."""
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db", timeout=10)) as db, db:
        db.execute("UPDATE timer SET due = 0")
    with contextlib.suppress(OSError):
        pipe = cli.state_dir / f"keeper.{os.stat('/proc/self/ns/pid').st_ino}"
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


ACQUIRE = ("acquire", "-q", "-w", "0", "-t", "T")


def acquire(cli: Cli, *options: str) -> str:
    """Take a lease of T at once; returns the handle's id."""
    return os.path.basename(cli(*ACQUIRE, *options).handle)


def in_a_row(cli: Cli, *commands: tuple[str, ...]) -> list[str]:
    """Run commands of an installation; returns the ids of the handles that they print."""
    finished = cli.spawn([sys.executable, "-c", IN_A_ROW, json.dumps(commands)]).finish()
    assert finished.code == 0, finished
    return [os.path.basename(line) for line in finished.out.splitlines() if line.startswith("/")]


def is_renewed(cli: Cli, handle_id: str) -> bool:
    """Whether a ttl was given anew just now."""
    ((at,),) = cli.query("SELECT renew_time FROM lease WHERE handle = ?", handle_id)
    assert isinstance(at, float)
    return at > time.time() - 0.3


class Kept:
    """What a keeper of the version before has to do: one of each kind.

    Args:
        old: The version before; makes the pool "T", of which all is held.
    """

    def __init__(self, old: Cli) -> None:
        self.holder: Started = old.spawn(["sleep", "1000"])
        self.guarded, self.whole, self.partly, self.renewing, self.plain = in_a_row(
            old,
            ("pool", "create", "-q", "T", "--count", "6"),
            (*ACQUIRE, "--guard-pid", str(self.holder.pid)),
            ACQUIRE,
            (*ACQUIRE, "-c", "2"),
            (*ACQUIRE, "--ttl", "4"),  # a busy machine starts a keeper in 2 s
            ACQUIRE,
        )
        self.later, self.stays = sorted(
            name for name, owner in old.held().items() if owner == self.partly
        )
        later = ("--delay", "1h", "--detach")
        in_a_row(
            old,
            ("release", "--handle", self.whole, *later),
            ("release", "--names", self.later, *later),
        )
        self.keeper = the_keeper(old)
        assert schema(old) == 2

        self.holds = [self.guarded, self.whole, self.partly, self.partly, self.renewing, self.plain]

    def does_all_of_it(self, cli: Cli) -> None:
        """See that the keeper does all that it has to do, and lets go of nothing else."""
        eventually(lambda: is_renewed(cli, self.renewing), what="a ttl is renewed")
        held = list(cli.held().values())
        assert [each for each in self.holds if each not in held] == []
        make_overdue(cli)
        eventually(lambda: self.whole not in cli.held().values(), what="a delayed release happens")
        eventually(lambda: cli.held().get(self.later) != self.partly, what="and that of a name")
        self.holder.kill()
        eventually(lambda: self.guarded not in cli.held().values(), what="a guard's death is seen")
        assert cli.held()[self.stays] == self.partly
        assert {self.renewing, self.plain} <= set(cli.held().values())
        eventually(lambda: is_renewed(cli, self.renewing), what="a ttl is renewed still")


@pytest.mark.parametrize("place", ["in place", "beside it"])
def test_a_keeper_of_the_version_before_makes_way_and_nothing_is_lost(
    machine: Machine, place: str
) -> None:
    old = machine.install_before("one")
    # Nobody replaces what these run; only the records change under them.
    elsewhere = machine.install_before("another")
    kept = Kept(old)
    elsewhere.ok("pool", "create", "R", "--count", "1")
    run = elsewhere.start("run", "-t", "R", "--ttl", "2", "--", "sleep", "1000")
    eventually(lambda: "R--00" in old.held(), what="a run has its lease")
    first = elsewhere.start("acquire", "-q", "-t", "T")
    eventually(lambda: len(old.waiting()) == 1, what="a process of the version before waits")

    new = machine.install("one" if place == "in place" else "two")
    new.ok("status")
    assert schema(new) == SCHEMA_VERSION
    eventually(lambda: starts(new) == 2, what="the keeper, or another, has started")
    if place == "in place":
        assert the_keeper(new) == kept.keeper, "it became this version"
        assert keeper_log(new).count("handing over") == 1
    else:
        assert the_keeper(new) != kept.keeper
        eventually(lambda: not Path(f"/proc/{kept.keeper}").exists(), what="the old one is gone")
    second = new.start("acquire", "-q", "-t", "T")
    eventually(lambda: len(new.waiting()) == 2, what="one of this version waits behind it")

    eventually(lambda: is_renewed(new, new.held()["R--00"]), what="the run renews")
    kept.does_all_of_it(new)
    handles = [os.path.basename(each.finish().handle) for each in (first, second)]
    fences = [new.query("SELECT fence FROM lease WHERE handle = ?", each) for each in handles]
    assert fences == sorted(fences), "the first in the queue was granted first"
    left = [kept.partly, kept.renewing, kept.plain, *handles]
    assert sorted(new.held().values()) == sorted([*left, new.held()["R--00"]])
    run.signal(signal.SIGTERM)
    run.finish()
    eventually(lambda: "R--00" not in new.held(), what="the run has released")
    new.ok("release", "--all")
    assert new.held() == {}
    assert broken_invariants(new.state_dir) == []
    assert starts(new) == 2, "it was asked to make way once"


@pytest.mark.parametrize(("place", "stride"), [("in place", 101), ("beside it", 201)])
def test_whoever_is_killed_while_it_makes_way_nothing_is_lost(
    machine: Machine, place: str, stride: int
) -> None:
    """The first command of this version, at some of its calls into the system."""
    kills = 0
    for number in range(5, 3000, 7 if EVERY_KILL else stride):
        old = machine.install_before("one")
        kept = Kept(old)
        new = machine.install("one" if place == "in place" else "two")
        code = killed_at(new, number, "pool", "list")
        assert code in (0, -signal.SIGKILL)
        new.ok("pool", "list")
        kept.does_all_of_it(new)
        assert broken_invariants(new.state_dir) == [], f"killed at event {number}"
        for each in (old, new):
            each.close()
        shutil.rmtree(new.state_dir)
        if code == 0:
            break
        kills += 1
    assert code == 0
    assert kills >= 5


def killed_at(cli: Cli, number: int, *args: str) -> int:
    """Run a command and KILL it at its event of that number; how it ended."""
    folder = cli.env["PYTHONPATH"]
    argv = [sys.executable, "-c", KILLED, str(number), *args]
    return cli.spawn(argv, PYTHONPATH=f"{folder}:{REPOSITORY}").finish().code


def call_it_another_version(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db", timeout=10)) as db, db:
        db.execute("UPDATE keeper_version SET version = 'another'")


def test_a_keeper_whose_version_is_replaced_later_is_asked_once(cli: Cli) -> None:
    cli.pool("T")
    acquire(cli, "--release-after", "1h")
    keeper = the_settled_keeper(cli)
    assert cli.query("SELECT version, asked FROM keeper_version") == [(leasectl.__version__, "")]
    call_it_another_version(cli)
    cli.ok("status")
    eventually(lambda: starts(cli) == 2, what="it becomes what is installed")
    eventually(lambda: cli.query("SELECT version FROM keeper_version") == [(leasectl.__version__,)])
    # As when a process that began before the upgrade goes on asking.
    call_it_another_version(cli)
    for _ in range(3):
        cli.ok("status")
    assert the_keeper(cli) == keeper
    assert starts(cli) == 2
    assert len(cli.held()) == 1


def test_a_keeper_of_another_version_from_elsewhere_is_left_alone_if_it_can_read_the_records(
    cli: Cli, machine: Machine
) -> None:
    one, two = machine.install("one"), machine.install("two")
    one.ok("pool", "create", "T", "--count", "2")
    acquire(one, "--release-after", "1h")
    keeper = the_settled_keeper(one)
    call_it_another_version(cli)
    for _ in range(2):
        two.ok("status")
    asked = cli.query("SELECT version, asked FROM keeper_version")
    assert asked == [("another", leasectl.__version__)]
    assert (the_keeper(cli), starts(cli)) == (keeper, 1)
    one.ok("status")
    assert starts(cli) == 1


def test_what_is_armed_by_who_asks_a_keeper_to_make_way_is_not_missed(cli: Cli) -> None:
    """The wake-up goes to what the process was before, and nothing is committed yet."""
    cli.pool("T")
    acquire(cli, "--release-after", "1h")
    the_settled_keeper(cli)
    handle = acquire(cli)
    call_it_another_version(cli)
    with cli.service() as service, service.state.transaction():
        service.handles.timers.arm(whole(service.handles.require(handle)), 0.0)
        keeper_process.wake(service.state)
        eventually(lambda: starts(cli) == 2, what="it has become another")
        time.sleep(0.3)  # in which it would do its first round, if it didn't wait
        assert handle in cli.held().values()
    eventually(lambda: handle not in cli.held().values(), what="it is released")
