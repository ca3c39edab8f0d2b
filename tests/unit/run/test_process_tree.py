"""`leasectl run` and what its command started: no lease goes back before the tree is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Context
from leasectl.errors import LeaseError, LeaseLost
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.run import supervision
from leasectl.run.child import Child, Ending
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.leased_command import give_back
from leasectl.run.plan import Plan
from leasectl.run.supervision import Supervisor
from leasectl.state import keeper_process
from leasectl.system.clock import Clock
from leasectl.system.poll import Alarm
from leasectl.system.process import identify, this_process
from leasectl.system.signals import SignalDescriptor
from tests.kit.descriptors import leaving_open
from tests.kit.desk import Desk
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

TYPE = "T"
AS_ANOTHER_USER = ("setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


@pytest.fixture
def pool(cli: Cli) -> str:
    cli.pool(TYPE, "T--00")
    return TYPE


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """A worker that heeds TERM, whose shell waits for it; writes its pid to `pid`."""
    path = tmp_path / "worker"
    said = tmp_path / "pid"
    path.write_text(f"#!/bin/sh\necho $$ >{said}.new; mv {said}.new {said}\nexec sleep 600\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def deaf_worker(worker: Path) -> Path:
    """One that ignores TERM."""
    worker.write_text(worker.read_text().replace("#!/bin/sh\n", "#!/bin/sh\ntrap '' TERM\n"))
    return worker


def start(cli: Cli, *argv: str, options: tuple[str, ...] = ()) -> Started:
    return cli.spawn([*cli.command("run", "-t", TYPE, *options), "--", *argv])


def worker_pid(tmp_path: Path) -> int:
    eventually(lambda: (tmp_path / "pid").exists(), what="the worker has begun")
    return int((tmp_path / "pid").read_text())


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def force(cli: Cli) -> None:
    cli.ok("release", "--names", "T--00", "--force")


@pytest.mark.parametrize("how", ["term", "force"])
@pytest.mark.parametrize("ttl", [(), ("--ttl", "30s")], ids=["for good", "with a ttl"])
def test_worker_behind_a_shell_is_gone_when_its_lease_is_granted_again(
    cli: Cli, pool: str, worker: Path, tmp_path: Path, how: str, ttl: tuple[str, ...]
) -> None:
    run = start(cli, "sh", "-c", f"{worker} && true", options=ttl)
    pid = worker_pid(tmp_path)
    try:
        run.signal(signal.SIGTERM) if how == "term" else force(cli)
        looked = cli("run", "-t", TYPE, "-w", "5m", "--", "sh", "-c", f"kill -0 {pid}")
        assert looked.code == 1, "the worker lived beside the next holder"
        run.finish()
    finally:
        end(pid)


@pytest.mark.once
def test_worker_that_ignores_term_is_killed_within_its_ttl(
    cli: Cli, pool: str, deaf_worker: Path, tmp_path: Path
) -> None:
    run = start(cli, "sh", "-c", f"{deaf_worker} && true", options=("--ttl", "4s"))
    pid = worker_pid(tmp_path)
    try:
        force(cli)
        looked = cli("run", "-t", TYPE, "-w", "5m", "--", "sh", "-c", f"kill -0 {pid}")
        assert looked.code == 1, "the worker lived beside the next holder"
        run.finish()
    finally:
        end(pid)


def test_process_that_run_had_before_is_left_alone(
    cli: Cli, pool: str, worker: Path, tmp_path: Path
) -> None:
    """A script may `exec` run with background jobs of its own."""
    inner = " ".join(cli.command("run", "-t", TYPE))
    script = f"sleep 600 >/dev/null 2>&1 & echo $! >{tmp_path}/before; exec {inner} -- {worker}"
    run = cli.spawn(["sh", "-c", script])
    worker_pid(tmp_path)
    before = int((tmp_path / "before").read_text())
    try:
        run.signal(signal.SIGTERM)
        run.finish()
        assert lives(before)
    finally:
        end(before)


@needs_root
@pytest.mark.parametrize("how", ["term", "force"])
def test_command_of_another_user_keeps_its_lease_until_it_has_ended(
    cli: Cli, pool: str, worker: Path, tmp_path: Path, how: str
) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o1777)
    argv = ["setpriv", "--reuid", "54321", "--clear-groups", str(worker)]
    run = cli.spawn([*AS_ANOTHER_USER, *cli.command("run", "-t", TYPE), "--", *argv])
    pid = worker_pid(tmp_path)
    try:
        run.signal(signal.SIGTERM) if how == "term" else force(cli)
        assert cli("acquire", TYPE, "-w", "1s").code == 75
        assert lives(pid)
        end(pid)
        assert "belongs to another user" in run.finish().err
        assert cli("run", "-t", TYPE, "-w", "5m", "--", "true").code == 0
    finally:
        end(pid)


def test_run_as_pid_1_reaps_orphans(cli: Cli, pool: str, tmp_path: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a pid namespace")
    script = (
        "for i in 1 2 3 4 5; do (sleep 0.05 &) done; n=1; "
        "for round in $(seq 200); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status | wc -l); "
        "[ $(pgrep -cx sleep) = 0 ] && [ $n = 0 ] && exit 0; sleep 0.05; done; exit 9"
    )
    script = script.replace(
        "; sleep 0.05; done; exit 9", "; read -t 0.1 x </dev/zero; done; exit 9"
    )
    run = cli.spawn([*unshare, *cli.command("run", "-t", TYPE), "--", "bash", "-c", script])
    finished = run.finish()
    assert finished.code == 0, finished


# Errors beside a command


class Failing:
    """Raises at one of the calls that go through it, or from that on, and says so by a file."""

    def __init__(
        self, struck: Path, at: int, error: BaseException, *, is_for_ever: bool = False
    ) -> None:
        self.struck, self.at, self.error, self.calls = struck, at, error, 0
        self.is_for_ever = is_for_ever

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **kwargs: object) -> object:
            self.calls += 1
            if self.calls == self.at or (self.is_for_ever and self.calls > self.at):
                self.struck.touch()
                raise self.error
            return function(*args, **kwargs)

        return called


# What the supervision calls while a command runs, and what only when it ends one; by whose.
WHILE_IT_RUNS: dict[object, tuple[str, ...]] = {
    supervision: ("sleep", "is_readable"),
    SignalDescriptor: ("read",),
    Alarm: ("set",),
    Supervisor: ("_forward_to", "_sleep", "_note_deadline", "_act_on_loss"),
    Child: ("kill_at",),
    LeaseWatch: ("fds", "until", "look", "is_lost", "_renew"),
}
WHEN_IT_IS_ENDED: dict[object, tuple[str, ...]] = {
    Child: ("signal", "descendants", "reap_orphans"),
    LeaseWatch: ("kill_at",),
}


def named(*kinds: dict[object, tuple[str, ...]]) -> pytest.MarkDecorator:
    calls = [(owner, name) for each in kinds for owner, names in each.items() for name in names]
    ids = [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name in calls]
    return pytest.mark.parametrize(("owner", "name"), calls, ids=ids)


@dataclass
class Leased:
    """A command under a lease with a ttl, in this process, as `run` and `once` start it."""

    desk: Desk
    signals: SignalDescriptor
    ends_with_us: bool

    def __post_init__(self) -> None:
        self.service = Service(
            self.desk.state, Context("local:", caller=self.desk.caller, clock=Clock())
        )
        request = Request("T", ttl_seconds=4.0)
        self.handle = acquire(self.service, request, patience=Patience(), followed=True)

    def start(
        self, script: str, *, ttl_seconds: float | None = None
    ) -> tuple[Supervisor, Child, LeaseWatch]:
        """Start a script; the watch can be made to expect an earlier end than the pool does."""
        argv = ("/bin/sh", "-c", script)
        ends = self.ends_with_us
        child = Child(argv[0], argv, dict(os.environ), self.signals, ends_with_us=ends)
        plan = Plan(command=("sh",), request=self.handle.request)
        supervisor = Supervisor(plan, self.signals, warn=lambda _: None, clock=Clock())
        sent_at = Clock().elapsed()
        renew(self.service, whole(self.handle))
        announce(self.service, self.handle, guard=identify(child.pid), runner=this_process())
        handle = self.desk.record(self.handle)
        if ttl_seconds is not None:
            handle = handle._replace(request=handle.request._replace(ttl_seconds=ttl_seconds))
        watch = LeaseWatch(self.service, handle, renewed_at=sent_at)
        return supervisor, child, watch

    def is_held(self) -> bool:
        return self.desk.held() != {}

    def end(self, child: Child, watch: LeaseWatch) -> None:
        watch.close()
        child.kill_rest()
        child.let_go()
        give_back(self.service, self.handle, warn=print)


@pytest.fixture(params=[False, True], ids=["run", "once"])
def leased(
    desk: Desk,
    signals: SignalDescriptor,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Leased:
    monkeypatch.setattr(keeper_process, "running", lambda state: this_process())
    desk.pool(1)
    return Leased(desk, signals, request.param)


def fail_once_begun(
    patch: pytest.MonkeyPatch, supervisor: Supervisor, owner: object, name: str, failing: Failing
) -> None:
    """Make a kind of call fail as soon as the command has begun."""
    begin = supervisor._begin

    def begin_and_fail(child: Child) -> object:
        begun = begin(child)
        patch.setattr(owner, name, failing(getattr(owner, name)))
        return begun

    patch.setattr(supervisor, "_begin", begin_and_fail)


@pytest.mark.once  # which Python it is makes no difference to who catches what
@named(WHILE_IT_RUNS)
@pytest.mark.parametrize(
    ("at", "error"), [(1, MemoryError()), (2, KeyboardInterrupt())], ids=["first", "second"]
)
def test_an_error_at_a_call_beside_a_command_ends_neither_it_nor_its_lease(
    leased: Leased,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    owner: object,
    name: str,
    at: int,
    error: BaseException,
) -> None:
    failing = Failing(tmp_path / "struck", at, error)
    script = f"until test -e '{failing.struck}'; do sleep 0.05; done; exit 3"
    supervisor, child, watch = leased.start(script)
    with monkeypatch.context() as patch:
        fail_once_begun(patch, supervisor, owner, name, failing)
        assert supervisor.supervise(child, watch) == Ending(3)
    assert child.is_settled
    assert leased.is_held()
    leased.end(child, watch)


def check_ended_for_its_lease(
    leased: Leased, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, failing: Failing
) -> None:
    """Let renewals fail: the lease is lost, and the command is killed at its last moment."""
    if leased.ends_with_us and name == "reap_orphans":
        pytest.skip("its warden reaps them")
    script = "trap '' TERM; sleep 600 & wait; wait; wait"
    supervisor, child, watch = leased.start(script, ttl_seconds=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(watch, "_note_renewal", lambda *_: watch._renew_again())
        fail_once_begun(patch, supervisor, owner, name, failing)
        began = time.monotonic()
        with pytest.raises(LeaseLost):
            supervisor.supervise(child, watch)
        rounds = (time.monotonic() - began) / supervision._AFTER_ERROR_SECONDS
    assert failing.struck.exists()
    assert failing.calls < 10 * (rounds + 10), "it doesn't pause after an error"
    assert child.is_settled
    assert leased.ends_with_us or not lives(child.pid)  # its warden lives until it is let go
    leased.end(child, watch)


@pytest.mark.once
@named(WHILE_IT_RUNS, WHEN_IT_IS_ENDED)
def test_a_call_that_fails_for_ever_leaves_a_command_its_lease_until_it_has_ended(
    leased: Leased, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, name: str
) -> None:
    failing = Failing(tmp_path / "struck", 1, RuntimeError("no more"), is_for_ever=True)
    check_ended_for_its_lease(leased, monkeypatch, owner, name, failing)


@pytest.mark.once
@named(WHEN_IT_IS_ENDED)
def test_an_error_at_a_call_that_ends_a_command_leaves_its_lease_until_it_has_ended(
    leased: Leased, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, name: str
) -> None:
    failing = Failing(tmp_path / "struck", 1, MemoryError())
    check_ended_for_its_lease(leased, monkeypatch, owner, name, failing)


def test_settle_kills_a_command_that_runs_and_its_tree(
    signals: SignalDescriptor, worker: Path, tmp_path: Path
) -> None:
    argv = ("/bin/sh", "-c", f"{worker} && true")
    child = Child(argv[0], argv, dict(os.environ), signals)
    supervisor = Supervisor(
        Plan(command=("sh",), request=Request("T")), signals, warn=print, clock=Clock()
    )
    child.start()  # the test process needn't be a subreaper
    pid = worker_pid(tmp_path)
    supervisor.settle(child)
    eventually(lambda: not lives(pid), what="the worker is gone")
    assert child.is_settled


def test_a_fork_that_fails_is_one_error(
    signals: SignalDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    refused = pytest.raises(LeaseError, match="can't start true: Resource temporarily")
    with leaving_open(0), refused:
        Child("/bin/true", ("true",), {}, signals)
