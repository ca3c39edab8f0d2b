"""What tests of several parts need: a command line of their own, patience, a clock to set."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.http.settings import parse_settings
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, parse_process
from leasectl.state.directory import State
from leasectl.system.clock import Clock, boottime_seconds
from leasectl.system.process import open_pidfd
from tests.kit import fork_server
from tests.kit.forked_command import Command
from tests.kit.waits import eventually, outputs_of, wait_readable

# What a CI job that the tests run in may have set, and a command under test must not see.
_FOREIGN = ("LEASECTL_", "LEASE_PROXY_", "CLUSTER_PROFILE_", "KUBERNETES_SERVICE_")
CI_MARKERS = ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "TF_BUILD")
_FOREIGN_NAMES = ("SHARED_DIR", "JOB_NAME", "BUILD_ID", "BUILD_URL", "KUBECONFIG", *CI_MARKERS)


def since_boot(wall: float) -> float:
    """A time of the wall clock as one of CLOCK_BOOTTIME, by what both say now."""
    while True:
        before, offset = boottime_seconds(), boottime_seconds() - time.time()
        if boottime_seconds() - before < 0.001:  # else another process may have run in between
            return wall + offset


def kill(pid: int) -> None:
    """KILL a process and see it dead, even if it is not a child of this process."""
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_readable(pidfd, what=f"the end of process {pid}")
    os.close(pidfd)


def stop(pid: int, state_dir: Path) -> None:
    """STOP a process where it doesn't hold the lock of a state directory, and see it stopped.

    Stopped with the lock, it would keep everybody from everything.
    """
    with open(state_dir / "state.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(pid), what="it is stopped")


def is_stopped(pid: int) -> bool:
    """Whether nothing of a process runs."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended by now
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change how leasectl behaves."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
    }


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def handle(self) -> str:
        """The handle that an `acquire` printed."""
        assert self.code == 0, self
        return self.out.rstrip("\n")


class Started:
    """A command that runs, in a session of its own."""

    def __init__(self, process: subprocess.Popen[str] | Command) -> None:
        self.process = process
        self.pid = process.pid

    def kill(self) -> None:
        """KILL it and see it gone. What it started may live on, and hold its output open."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def finish(self) -> Finished:
        """Wait for its end; a negative code is the signal that ended it."""
        out, err = outputs_of(self.process)
        return Finished(self.process.wait(), out, err)


@dataclass
class Cli:
    """``leasectl`` as scripts run it: real processes, on a state directory of its own.

    Args:
        state_dir: What `LEASECTL_STATE_DIR` says.
        cwd: Where commands run: not where the source is, so that the installed package runs.
        env: Their environment.
        forks_keeper: As `fork_server.start` has it.
    """

    state_dir: Path
    cwd: Path
    env: dict[str, str] = field(default_factory=clean_environment)
    forks_keeper: bool = True
    _started: list[Started] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env["LEASECTL_STATE_DIR"] = str(self.state_dir)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "leasectl", *args]

    def __call__(self, *args: str, **env: str | None) -> Finished:
        """Run a command to its end. Keywords are environment variables; None unsets one."""
        return self.start(*args, **env).finish()

    def ok(self, *args: str, **env: str | None) -> str:
        """Run a command that has to succeed; returns its stdout."""
        finished = self(*args, **env)
        assert finished.code == 0, finished
        return finished.out

    def start(self, *args: str, **env: str | None) -> Started:
        """Start a command; it is killed at the end of the test if it still runs."""
        if type(self).command is Cli.command:
            whole = with_changes(self.env, env)
            command = fork_server.start(
                args, env=whole, cwd=self.cwd, forks_keeper=self.forks_keeper
            )
            if command is not None:
                self._started.append(Started(command))
                return self._started[-1]
        return self.spawn(self.command(*args), **env)

    def spawn(self, argv: Sequence[str], **env: str | None) -> Started:
        """Start any program in the same surroundings, `command` for a fresh interpreter."""
        started = Started(
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=self.cwd,
                env=with_changes(self.env, env),
                start_new_session=True,
            )
        )
        self._started.append(started)
        return started

    def pool(self, pool_type: str, *names: str) -> None:
        """Make a pool; its resources are ``<type>--00`` to ``--01`` unless named."""
        with self.service() as service:
            service.pools.create_pool(
                pool_type, names or [f"{pool_type}--{number:02d}" for number in range(2)]
            )

    def hold(self, request: Request | str, *, owner: str = "test@host") -> Handle:
        """Acquire a lease that stays, without starting a process; a type alone will do."""
        request = Request(request) if isinstance(request, str) else request
        with self.service(owner=owner) as service:
            handle = acquire(service, request, patience=Patience(wait_seconds=0))
            announce(service, handle)
            return handle

    @contextlib.contextmanager
    def service(
        self,
        *,
        owner: str = "test@host",
        host: str = "host",
        backend: str = "local:",
        settings: str = "",
    ) -> Iterator[Service]:
        """The state directory from inside this process."""
        state = State.open(str(self.state_dir))
        try:
            caller = Caller(owner, host)
            yield Service(state, Context(backend, settings=parse_settings(settings), caller=caller))
        finally:
            state.close()

    def snapshot(self) -> dict[str, object]:
        """All that a command could change: every row, and every file with what it holds."""
        return {"rows": self._rows(), "files": self._files()}

    def _rows(self) -> list[str] | None:
        if not (self.state_dir / "state.db").is_file():
            return None
        uri = f"file:{self.state_dir}/state.db?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
                return list(db.iterdump())
        except sqlite3.DatabaseError:
            return None  # damaged; its bytes are compared

    def _files(self) -> dict[str, tuple[int, bytes | None]]:
        found = {}
        for path in [self.state_dir, *self.state_dir.rglob("*")]:
            # SQLite's own files change when somebody only reads.
            if not path.name.startswith(("state.db-", "state.lock")):
                mode = path.lstat().st_mode
                content = path.read_bytes() if stat.S_ISREG(mode) else None
                if path.name == "state.db" and self._rows() is not None:
                    content = None
                found[str(path)] = (mode, content)
        return found

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Read the database, changing nothing: not by any code of leasectl."""
        uri = f"file:{self.state_dir}/state.db?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
            return db.execute(sql, values).fetchall()

    def held(self) -> dict[str, str]:
        """The held resources and the ids of the handles that hold them."""
        rows = self.query("SELECT name, owner FROM resource WHERE owner IS NOT NULL ORDER BY name")
        return {str(name): str(owner) for name, owner in rows}

    def waiting(self) -> list[str]:
        """The ids of the handles in queues, in the order of their tickets."""
        return [str(owner) for (owner,) in self.query("SELECT owner FROM ticket ORDER BY number")]

    def keepers(self) -> list[int]:
        """The pids of this state directory's keepers that live."""
        if not (self.state_dir / "state.db").exists():
            return []
        # Where a table's definition is damaged, Python can't read what SQLite says of it.
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            processes = [parse_process(str(text)) for (text,) in self.query(_KEEPERS)]
            pidfds = {process.pid: open_pidfd(process) for process in processes}
            for pidfd in pidfds.values():
                if pidfd is not None:
                    os.close(pidfd)
            return [pid for pid, pidfd in pidfds.items() if pidfd is not None]
        return []

    def close(self) -> None:
        """End what the test started and left running, the keeper included."""
        for started in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            if started.process.poll() is None:
                started.kill()
        for pid in self.keepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_KEEPERS = "SELECT process FROM keeper"


def with_changes(env: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """An environment with some variables set and, for None, unset."""
    merged = {**env, **changes}
    return {name: value for name, value in merged.items() if value is not None}


class ManualClock:
    """A clock that stands still until a test moves it.

    Attributes:
        clock: What components take their time from.
    """

    def __init__(self, elapsed: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._elapsed = elapsed
        self._wall = wall
        self.clock = Clock(elapsed=lambda: self._elapsed, wall=lambda: self._wall)

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds
        self._wall += seconds

    def put_back(self, seconds: float) -> None:
        """Put the wall clock back, as another machine's may be."""
        self._wall -= seconds


def clock_from(event: threading.Event) -> Clock:
    """A clock that stands still until something has happened: no stall comes before that."""
    happened_at: list[float] = []

    def elapsed() -> float:
        if not event.is_set():
            return 0.0
        happened_at.append(time.monotonic())
        return time.monotonic() - happened_at[0]

    return Clock(elapsed=elapsed)


def clock_without_stalls(rate: float = 1.0) -> Clock:
    """A clock that a machine with other things to do doesn't put forward.

    Between two looks at it no more than a fifth of a second goes by: waiters look again.

    Args:
        rate: How much faster than others it is.
    """
    looked_at, counted = boottime_seconds(), 1000.0

    def elapsed() -> float:
        nonlocal looked_at, counted
        now = boottime_seconds()
        counted += rate * min(now - looked_at, 0.2)
        looked_at = now
        return counted

    return Clock(elapsed=elapsed)


# Imports everything while it still may read it, then becomes another user.
_AS_ANOTHER_USER = """
import codecs, importlib, json, difflib, os, pkgutil, pwd, random, resource, shlex, sys
import leasectl
for module in pkgutil.walk_packages(leasectl.__path__, "leasectl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
codecs.lookup("ascii")
uid = int(sys.argv.pop(1))
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
sys.modules["leasectl.cli.app"].main()
"""


@dataclass
class CliOfAnotherUser(Cli):
    """``leasectl`` as a user without a passwd entry runs it; needs root, and starts no keeper.

    Not the user of another run of the tests: its default state directory is in /tmp.
    """

    uid: int = 20_000 + os.getpid() % 40_000

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", _AS_ANOTHER_USER, str(self.uid), *args]
