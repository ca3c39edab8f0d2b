"""The keeper or its anchor is killed at each system call while it takes or gives up the lock.

Meanwhile another process looks all the time: the namespace, which lives, must never seem gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.keeper import namespace_lock
from leasectl.keeper.log import Log
from leasectl.keeper.namespace_lock import NamespaceLock
from leasectl.state.directory import State
from leasectl.system import process
from leasectl.system.clock import Clock
from leasectl.system.namespaces import is_gone, lock_path
from leasectl.system.process import own_pid_namespace
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_at
from tests.kit.support import Cli
from tests.kit.waits import eventually

_MOST_EVENTS = 400


@pytest.fixture(autouse=True)
def in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keepers take the lock in the pid namespace of the tests too."""
    monkeypatch.setattr(process, "_FIRST_PID_NAMESPACE", 0)
    monkeypatch.setattr(namespace_lock, "_ANCHOR_LOOKS_SECONDS", 0.01)


@pytest.fixture
def directory(cli: Cli) -> Iterator[str]:
    """A state directory whose namespace lock was taken by a keeper that is dead by now."""
    with cli.service():
        pass
    directory = str(cli.state_dir)
    assert keep(directory, lambda lock: lock.hold()) == 0
    assert is_locked(directory)
    with looking(directory):
        yield directory
    lock_file(directory).unlink()  # the anchors end


def keep(directory: str, do: Callable[[NamespaceLock], object]) -> int:
    """Be a keeper for a moment, that ends without having closed anything; returns how it ended."""

    def work() -> None:
        state = State.open(directory)
        log = Log(state.path("keeper.log"), Clock())
        do(NamespaceLock(state, clock=Clock(), log=log))

    return ending(fork(work))


@contextlib.contextmanager
def looking(directory: str) -> Iterator[None]:
    """Look all the time whether the namespace seems gone; at the end, it never must have."""
    seen, see = os.pipe()

    def look() -> None:
        while True:
            if is_gone(directory, own_pid_namespace()):
                os.write(see, b".")
            time.sleep(0.0001)

    looker = fork(look)
    os.close(see)
    try:
        yield
    finally:
        os.kill(looker, signal.SIGKILL)
        ending(looker)
    with open(seen, "rb") as file:
        assert file.read() == b""


def lock_file(directory: str) -> Path:
    return Path(lock_path(directory, own_pid_namespace()))


def is_locked(directory: str) -> bool:
    return lock_file(directory).exists() and not is_gone(directory, own_pid_namespace())


def until_unharmed(attempt: Callable[[int], int]) -> int:
    """Attempt with the number of the event to be killed at, until none is; returns the number."""
    for number in range(1, _MOST_EVENTS):
        code = attempt(number)
        assert code in (0, -signal.SIGKILL), f"event {number}: {code}"
        if code == 0:
            return number
    raise AssertionError("still being killed")


def test_keeper_can_be_killed_anywhere_while_it_takes_the_lock(directory: str) -> None:
    def attempt(number: int) -> int:
        def take(lock: NamespaceLock) -> None:
            kill_at(number)
            lock.hold()

        return keep(directory, take)

    def attempt_after_another(number: int) -> int:
        code = attempt(number)
        assert is_locked(directory), f"killed at event {number}"
        return code

    assert until_unharmed(attempt_after_another) > 30
    lock_file(directory).unlink()
    assert until_unharmed(attempt) > 30
    assert is_locked(directory)


def test_keeper_can_be_killed_anywhere_while_it_gives_up_the_lock(directory: str) -> None:
    def attempt(number: int) -> int:
        def give_up(lock: NamespaceLock) -> None:
            lock.hold()
            kill_at(number)
            lock.close()

        return keep(directory, give_up)

    assert until_unharmed(attempt) > 5
    assert not lock_file(directory).exists()
    assert keep(directory, lambda lock: lock.hold()) == 0


def test_anchor_can_be_killed_anywhere(directory: str) -> None:
    for number in range(1, 40):

        def keep_on(lock: NamespaceLock, number: int = number) -> None:
            kill_at(number, generation=1)
            lock.hold()
            kill_at(0)
            first = lock._anchor
            assert first is not None
            if number > 25:  # that far it never comes before it sleeps
                os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: lock.hold() is None and lock._anchor != first, what="a new anchor")
            assert is_locked(directory)

        assert keep(directory, keep_on) == 0
        assert is_locked(directory), "the keeper is gone and the anchor isn't"


def test_lock_is_given_up_where_no_process_can_be_forked(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of the keeper alone would tell of its own end only."""

    def refuse(_fd: int) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def take(lock: NamespaceLock) -> None:
        lock.hold()
        assert lock._anchor is not None
        os.kill(lock._anchor.pid, signal.SIGKILL)
        monkeypatch.setattr(namespace_lock, "_fork_anchor", refuse)
        eventually(lambda: lock.hold() is not None, what="it tries again later")
        assert not lock_file(directory).exists()

    assert keep(directory, take) == 0
    assert "can't tell when this one has ended" in (Path(directory) / "keeper.log").read_text()
    monkeypatch.undo()
    monkeypatch.setattr(process, "_FIRST_PID_NAMESPACE", 0)
    assert keep(directory, lambda lock: lock.hold()) == 0
