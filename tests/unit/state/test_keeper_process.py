"""leasectl.state.keeper_process: how a keeper is started, and who hears of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.errors import LeaseError
from leasectl.model import Handle, Request
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.pipes import listen
from leasectl.system.poll import is_readable
from leasectl.system.process import is_dead
from tests.kit.support import eventually

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


def open_here() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_it_has_nothing_of_whoever_starts_it_and_leaves_nothing_there(
    state: State, seen: Path
) -> None:
    before = open_here()
    # As under nohup(1), or in the background of a shell without job control.
    ignored = (signal.SIGINT, signal.SIGHUP)
    handlers = [signal.signal(each, signal.SIG_IGN) for each in ignored]
    try:
        keeper_process.ensure(state)
    finally:
        for each, handler in zip(ignored, handlers):
            signal.signal(each, handler)
    assert open_here() == before
    eventually(seen.exists, what="the candidate runs")
    assert json.loads(seen.read_text()) == {**dict.fromkeys("012", "/dev/null"), "cwd": "/"}
    keeper = keeper_process.running(state)
    assert keeper is not None
    assert Path(f"/proc/{keeper.pid}/stat").read_text().rpartition(")")[2].split()[1] == "1"


def test_there_is_one_for_all_who_ask(state: State, seen: Path) -> None:
    keeper_process.ensure(state)
    first = keeper_process.running(state)
    keeper_process.ensure(state)
    assert keeper_process.running(state) == first is not None


def test_one_that_can_not_be_woken_gets_a_signal(state: State, seen: Path) -> None:
    keeper_process.call(state)  # there is none
    keeper_process.ensure(state)
    eventually(seen.exists, what="the candidate runs")
    keeper = keeper_process.running(state)
    assert keeper is not None
    with state.transaction():
        keeper_process.wake(state)
    eventually(lambda: is_dead(keeper), what="it is called")


def test_one_that_was_killed_is_forgotten_and_one_that_lives_is_not(
    state: State, seen: Path
) -> None:
    keeper_process.remove_dead(state)  # there is none
    keeper_process.ensure(state)
    keeper = keeper_process.running(state)
    assert keeper is not None
    keeper_process.remove_dead(state)
    assert keeper_process.registered(state) == keeper
    os.kill(keeper.pid, signal.SIGKILL)
    eventually(lambda: is_dead(keeper), what="it is killed")
    keeper_process.remove_dead(state)
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

    before, blocked = open_here(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", counted)
        with pytest.raises(LeaseError, match="can't start the keeper"):
            keeper_process.ensure(state)
    assert open_here() == before
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
