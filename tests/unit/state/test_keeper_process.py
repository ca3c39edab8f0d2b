"""leasectl.state.keeper_process: how a keeper is started, and who hears of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import leasectl
from leasectl.errors import LeaseError
from leasectl.model import Handle, Request
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.named_pipe import NamedPipe, listen
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, is_dead, this_process
from tests.kit.descriptors import leaving_open
from tests.kit.forking import ending, fork
from tests.kit.waits import eventually

# What is started here instead of a keeper: it writes what it has open, where it is and what it
# ignores, and stays until it is called.
LOOKS = """
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
links = {"cwd": os.getcwd()}
for each in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(each) == signal.SIG_IGN:
        links[each.name] = "ignored"
for fd in os.listdir("/proc/self/fd"):
    try:
        links[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        pass  # by which the folder was read
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(links, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.sigwait([signal.SIGURG])
"""


@pytest.fixture
def state(state_dir: Path) -> Iterator[State]:
    state = State.open(str(state_dir))
    yield state
    keeper = keeper_process.running(state)
    if keeper is not None:
        os.kill(keeper.pid, signal.SIGKILL)
    state.close()


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a candidate writes instead of becoming a keeper."""
    path = tmp_path / "seen"
    argv = [sys.executable, "-c", LOOKS, str(path)]
    monkeypatch.setattr(keeper_process, "command", lambda directory: argv)
    return path


@pytest.fixture(params=[False, True], ids=["forked", "by a program"])
def with_and_without_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with threads starts a keeper by a program, another one forks it."""
    monkeypatch.setattr(keeper_process, "_has_threads", lambda: request.param)


@pytest.mark.usefixtures("with_and_without_threads")
def test_it_has_nothing_of_whoever_starts_it_and_leaves_nothing_there(
    state: State, seen: Path
) -> None:
    # As under nohup(1), or in the background of a shell without job control.
    ignored = (signal.SIGINT, signal.SIGHUP)
    handlers = [signal.signal(each, signal.SIG_IGN) for each in ignored]
    with leaving_open(0):
        own, stdin = os.open(__file__, os.O_RDONLY), os.dup(0)
        os.dup2(own, 0)
        os.set_inheritable(own, True)
        try:
            keeper_process.ensure(state)
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
            os.close(own)
            for each, handler in zip(ignored, handlers):
                signal.signal(each, handler)
    eventually(seen.exists, what="the candidate runs")
    assert json.loads(seen.read_text()) == {**dict.fromkeys("012", "/dev/null"), "cwd": "/"}
    keeper = keeper_process.running(state)
    assert keeper is not None
    assert Path(f"/proc/{keeper.pid}/stat").read_text().rpartition(")")[2].split()[1] == "1"


@pytest.mark.usefixtures("with_and_without_threads")
def test_it_heeds_all_signals_once_it_can(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [shutil.which("sleep") or "", "1000"]
    monkeypatch.setattr(keeper_process, "command", lambda directory: argv)
    ignored = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
    handlers = [signal.signal(each, signal.SIG_IGN) for each in ignored]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        keeper_process.ensure(state)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {*before, signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each, handler in zip(ignored, handlers):
            signal.signal(each, handler)
    keeper = keeper_process.running(state)
    assert keeper is not None
    of_it = Path(f"/proc/{keeper.pid}")
    eventually(lambda: (of_it / "comm").read_text() == "sleep\n", what="the candidate runs")
    status = dict(line.split(":\t", 1) for line in (of_it / "status").read_text().splitlines())
    blocked, are_ignored = (int(status[each], 16) for each in ("SigBlk", "SigIgn"))
    assert blocked == 1 << signal.SIGTERM - 1
    assert are_ignored & sum(1 << each - 1 for each in ignored) == 0
    assert os.getsid(keeper.pid) != os.getsid(0)


def test_it_knows_what_an_interpreter_needs_and_none_of_the_secrets(
    state: State, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": "/tmp",
        "LEASECTL_KEEP_EVENTS": "7d",
    }
    for name, value in {**kept, "TOKEN": "secret", "PYTHONPATH": "/elsewhere"}.items():
        monkeypatch.setenv(name, value)
    for name in ("LD_LIBRARY_PATH", "PYTHONHOME"):  # without which it may not even start here
        if name in os.environ:
            kept[name] = os.environ[name]
    folder = str(Path(leasectl.__file__).absolute().parents[1])
    expected = {**kept, "PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
    assert keeper_process.environment() == expected
    keeper_process.ensure(state)
    eventually(seen.exists, what="the candidate runs")
    keeper = keeper_process.running(state)
    assert keeper is not None
    words = Path(f"/proc/{keeper.pid}/environ").read_text().rstrip("\0").split("\0")
    assert dict(word.split("=", 1) for word in words) == expected


def test_who_is_still_a_fork_of_its_starter_is_not_without_code() -> None:
    """Its variables are those of its starter then, and a user's PYTHONPATH may name anything."""
    of_user = {"PYTHONPATH": "/nowhere"}
    for environment, missing in (
        (of_user, None),
        ({**of_user, "PYTHONSAFEPATH": "1"}, "/nowhere"),
    ):
        with subprocess.Popen(["sleep", "inf"], env={**os.environ, **environment}) as started:
            assert keeper_process.missing_code(identify(started.pid)) == missing
            started.kill()


def test_it_is_nobodys_child(state_dir: Path, seen: Path) -> None:
    def start() -> None:
        keeper_process.ensure(State.open(str(state_dir)))
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)

    assert ending(fork(start)) == 0
    with contextlib.closing(State.open(str(state_dir))) as state:
        keeper = keeper_process.running(state)
        assert keeper is not None
        os.kill(keeper.pid, signal.SIGKILL)


def test_a_candidate_that_is_killed_at_once_is_no_keeper(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(argv: Sequence[str]) -> tuple[int, int]:
        pid = fork(lambda: None)
        ending(pid)
        return pid, os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(keeper_process, "_fork_candidate", killed)
    with leaving_open(0):
        keeper_process.ensure(state)
        assert keeper_process.registered(state) is None
        with state.transaction():
            pass  # what was to let it start is closed with the next


def test_one_that_can_not_be_woken_gets_a_signal(state: State, seen: Path) -> None:
    keeper_process.call(state)  # there is none
    keeper_process.ensure(state)
    eventually(seen.exists, what="the candidate runs")
    keeper = keeper_process.running(state)
    assert keeper is not None
    with state.transaction():
        keeper_process.wake(state)
    eventually(lambda: is_dead(keeper), what="it is called")


@pytest.mark.parametrize("listens", [True, False])
def test_only_one_that_does_not_listen_is_sent_a_signal(state: State, listens: bool) -> None:
    keeper_process.call(state)  # there is none
    us = this_process()
    keeper_process.note(state.db, us)
    assert keeper_process.begin(state, us)
    called: list[int] = []
    before = signal.signal(signal.SIGURG, lambda signum, _: called.append(signum))
    try:
        with contextlib.ExitStack() as ends:
            if listens:
                pipe = NamedPipe(keeper_process.pipe_path(state))
                ends.callback(pipe.close)
            with state.transaction():
                keeper_process.wake(state)
            if listens:
                assert is_readable(pipe.fd, 0)
    finally:
        signal.signal(signal.SIGURG, before)
    assert called == ([] if listens else [signal.SIGURG])
    with state.transaction():
        keeper_process.resign(state)
    assert keeper_process.registered(state) is None


def test_a_python_that_does_not_know_where_it_lies_starts_none(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(LeaseError, match="the path of the Python interpreter is not known"):
        keeper_process.ensure(state)
    assert keeper_process.registered(state) is None


def test_one_that_can_not_go_on_is_ended_by_its_successor(
    state: State, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper_process.ensure(state)
    first = keeper_process.running(state)
    assert first is not None
    with monkeypatch.context() as patch:
        patch.setattr(keeper_process, "is_kept", lambda state: False)
        keeper_process.ensure(state)
    assert keeper_process.running(state) not in (None, first)
    eventually(lambda: is_dead(first), what="the first has ended")


def test_without_a_program_it_says_so_and_there_is_none(
    state: State, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_process, "_has_threads", lambda: True)
    monkeypatch.setattr(os, "fork", pytest.fail)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    refused = pytest.raises(LeaseError, match=r"can't start the keeper: .*No such file")
    with leaving_open(0), refused:
        keeper_process.ensure(state)
    assert keeper_process.registered(state) is None


@pytest.mark.parametrize("fails", [1, 2], ids=["the first fork", "the second"])
def test_without_a_process_it_says_so_and_there_is_none(
    state: State, seen: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    fork, forks = os.fork, 0

    def counted() -> int:
        nonlocal forks
        forks += 1
        if forks == fails:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with leaving_open(0), monkeypatch.context() as patch:
        patch.setattr(keeper_process, "_has_threads", lambda: False)
        patch.setattr(os, "fork", counted)
        with pytest.raises(LeaseError, match="can't start the keeper"):
            keeper_process.ensure(state)
    assert keeper_process.registered(state) is None
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    keeper_process.ensure(state)
    assert keeper_process.running(state) is not None


def test_those_hear_of_it_whose_turn_it_may_be(state: State, seen: Path) -> None:
    """Without a keeper nobody would tell them of what the dead had; and whom else to watch?"""
    requests = [Request("T", name="T--00"), Request("T"), Request("T"), Request("U")]
    pipes = [listen(state.waiter_pipe(f"waiter-{number}")) for number in range(len(requests))]
    handles = Handles(state)
    with state.transaction() as db:
        for number, request in enumerate(requests):
            handle = Handle(
                id=f"{request.type}-{number}",
                backend="local:",
                request=request,
                owner="job/1",
                holder_identity="job/1/host",
                state="acquiring",
                acquisition=1,
            )
            handles.create(handle, remote=False)
            db.execute(
                "INSERT INTO ticket (type, number, owner, holder_identity, count, since, pipe)"
                " VALUES (?, ?, ?, 'job/1/host', 1, 0, ?)",
                (request.type, number, handle.id, f"waiter-{number}"),
            )
    keeper_process.ensure(state)
    assert [is_readable(pipe.fd, 0) for pipe in pipes] == [True, True, False, True]
    for pipe in pipes:
        pipe.close()
