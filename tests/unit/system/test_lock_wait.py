"""Waiting for a lock, and what ends the wait.

What a process waits beside is one for all of it, so each waits in a process of its own.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.errors import Interrupted, LeaseError, LockHeld
from leasectl.system import lock_wait
from leasectl.system.lock_wait import (
    CLEAN_UP_SECONDS,
    LockLimit,
    flock_exclusive,
    flock_within,
    holders_of,
)
from leasectl.system.signals import SignalDescriptor, SignalTrap
from tests.kit.waits import PATIENCE_SECONDS, eventually

LIMIT = LockLimit()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


@pytest.fixture
def held(lock: Path) -> Iterator[int]:
    """The lock, in somebody else's hands."""
    fd = os.open(lock, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


class Waiter:
    """A process that waits as a function says, and tells by its exit code what came of it."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.since = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                wait()
                code = 0
            except Interrupted as interrupted:
                code = 100 + interrupted.signum
            except LeaseError:
                code = 1
            finally:
                os._exit(code)

    def is_asleep(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().split(") ")[1][0] == "S"

    def signal(self, signum: int) -> None:
        eventually(self.is_asleep)
        os.kill(self.pid, signum)

    def ending(self) -> int:
        return os.WEXITSTATUS(os.waitpid(self.pid, 0)[1])


def wait_for(path: Path) -> None:
    flock_exclusive(os.open(path, os.O_RDWR), LIMIT)


def beside_a_trap(path: Path) -> None:
    with SignalTrap():
        wait_for(path)


def beside_a_descriptor(path: Path) -> None:
    SignalDescriptor([signal.SIGTERM, signal.SIGUSR1])
    wait_for(path)


def in_a_thread(path: Path) -> None:
    """Beside a main thread that has signals, and a limit, to heed."""
    SignalDescriptor([signal.SIGTERM, signal.SIGUSR1])
    got: list[bool] = []

    def work() -> None:
        wait_for(path)
        got.append(True)

    thread = threading.Thread(target=work)
    with LIMIT.within(0.0):
        thread.start()
        thread.join()
    assert got == [True]


@pytest.mark.parametrize("wait", [wait_for, beside_a_trap, beside_a_descriptor, in_a_thread])
def test_a_free_lock_is_taken_and_another_waited_for(
    lock: Path, held: int, wait: Callable[[Path], None]
) -> None:
    waiter = Waiter(lambda: wait(lock))
    eventually(waiter.is_asleep)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert waiter.ending() == 0
    assert Waiter(lambda: wait(lock)).ending() == 0


def test_with_nothing_to_heed_it_is_one_call_whoever_has_it(
    lock: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, calls = fcntl.flock, list[int]()

    def counted(fd: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            flock(held, fcntl.LOCK_UN)  # once it is waited for, as it were
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", counted)
    fd = os.open(lock, os.O_RDWR)
    flock_exclusive(fd, LIMIT)
    assert calls == [fcntl.LOCK_EX]
    with LIMIT.within(1.0):
        flock_exclusive(fd, LIMIT)
    assert calls == [fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB]
    os.close(fd)


@pytest.mark.parametrize("wait", [beside_a_trap, beside_a_descriptor])
def test_a_signal_ends_the_wait(lock: Path, held: int, wait: Callable[[Path], None]) -> None:
    waiter = Waiter(lambda: wait(lock))
    waiter.signal(signal.SIGTERM)
    assert waiter.ending() == 100 + signal.SIGTERM


def test_one_that_does_not_end_processes_does_not(lock: Path, held: int) -> None:
    waiter = Waiter(lambda: beside_a_descriptor(lock))
    waiter.signal(signal.SIGUSR1)
    time.sleep(0.2)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert waiter.ending() == 0


def test_what_is_cleaned_up_after_a_signal_does_not_wait_for_long(lock: Path, held: int) -> None:
    def clean_up() -> None:
        with SignalTrap():
            try:
                wait_for(lock)
            except Interrupted:
                wait_for(lock)

    waiter = Waiter(clean_up)
    waiter.signal(signal.SIGTERM)
    assert waiter.ending() == 100 + signal.SIGTERM
    assert time.monotonic() - waiter.since >= CLEAN_UP_SECONDS


def test_what_is_cleaned_up_after_a_signal_may_take_the_lock(lock: Path, held: int) -> None:
    def clean_up() -> None:
        with SignalTrap():
            try:
                wait_for(lock)
            except Interrupted:
                fcntl.flock(held, fcntl.LOCK_UN)  # a child's lock is its parent's
                wait_for(lock)

    waiter = Waiter(clean_up)
    waiter.signal(signal.SIGTERM)
    assert waiter.ending() == 0


@pytest.mark.parametrize("wait", [wait_for, beside_a_trap, beside_a_descriptor])
def test_a_limit_ends_the_wait(lock: Path, held: int, wait: Callable[[Path], None]) -> None:
    def wait_within() -> None:
        with LIMIT.within(0.1):
            wait(lock)

    assert Waiter(wait_within).ending() == 1


def test_a_limit_that_is_over_leaves_each_wait_its_moment(lock: Path, held: int) -> None:
    def wait() -> None:
        with LIMIT.within(0.0, each_seconds=60.0):
            wait_for(lock)

    waiter = Waiter(wait)
    eventually(waiter.is_asleep)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert waiter.ending() == 0


def test_a_limit_inside_another_gives_way_to_it_again(lock: Path, held: int) -> None:
    def wait() -> None:
        with LIMIT.within(0.1):
            with LIMIT.within(None):
                pass
            wait_for(lock)

    assert Waiter(wait).ending() == 1


def test_who_holds_it_is_named(lock: Path, held: int) -> None:
    assert holders_of(held) == [str(os.getpid())]
    with LIMIT.within(0.0), pytest.raises(LockHeld, match=f"{lock} .* by process {os.getpid()}; "):
        wait_for(lock)


def test_a_lock_is_tried_for_so_long(lock: Path, held: int) -> None:
    fd = os.open(lock, os.O_RDWR)
    since = time.monotonic()
    assert not flock_within(fd, 0.1)
    assert time.monotonic() - since >= 0.1
    threading.Timer(0.1, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
    assert flock_within(fd, PATIENCE_SECONDS)
    os.close(fd)


def test_holders_are_looked_for_only_where_the_error_is_shown(
    lock: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> None:
        asked: list[str] = []

        def count(name: str) -> list[str]:
            asked.append(name)
            return ["4711"]

        monkeypatch.setattr(lock_wait, "_holders_of", count)
        with LIMIT.within(0.01), pytest.raises(LockHeld) as raised:
            wait_for(lock)
        assert asked == []
        assert "by process 4711;" in str(raised.value)
        os._exit(len(asked))

    assert Waiter(wait).ending() == 1


def test_lock_that_is_free_when_time_is_over_is_taken(
    lock: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> None:
        fd, flock, calls = os.open(lock, os.O_RDWR), fcntl.flock, list[int]()

        def as_if_stopped_meanwhile(fd: int, operation: int) -> None:
            calls.append(operation)
            if len(calls) == 3:
                flock(held, fcntl.LOCK_UN)
            flock(fd, operation)

        monkeypatch.setattr(fcntl, "flock", as_if_stopped_meanwhile)
        with LIMIT.within(0.01):
            flock_exclusive(fd, LIMIT)

    assert Waiter(wait).ending() == 0


def test_nothing_is_left_of_the_timer_after_a_wait(lock: Path, held: int) -> None:
    def wait() -> None:
        before = signal.getsignal(signal.SIGALRM)
        with LIMIT.within(0.01), pytest.raises(LockHeld):
            wait_for(lock)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) is before

    assert Waiter(wait).ending() == 0
