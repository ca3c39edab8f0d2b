"""Kill a process at each of its steps, or lose each answer it waits for."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Callable, NoReturn

from tests.kit.forking import ending, fork
from tests.kit.relay import Relay
from tests.kit.waits import eventually

# time, sys, builtins and the like do nothing that others can see.
_MODULES = {"posix", "fcntl", "select", "_signal", "_io", "_sqlite3", "resource"}
_POLL = type(select.poll())
_generation = 0
_count = 0
_hooked = False


def kill_at(
    number: int, *, generation: int = 0, before_poll: Callable[[FrameType], object] | None = None
) -> None:
    """KILL this process at its event of that number, counting from 1.

    Args:
        number: Each call into the system is two events: right before and right after it.
        generation: 0 for this process, 1 for those that it forks, 2 for those that they fork.
        before_poll: Called whenever this process is about to sleep in poll(2), with the frame
            that does so. It isn't killed until it wakes up.
    """

    def kill(event: int) -> None:
        if event == number:
            os.kill(os.getpid(), signal.SIGKILL)

    at_each_event(kill, generation=generation, before_poll=before_poll)


def at_each_event(
    act: Callable[[int], object],
    *,
    generation: int = 0,
    before_poll: Callable[[FrameType], object] | None = None,
) -> None:
    """Call a function at each event of this process, with its number.

    Args:
        act: What; its own calls into the system are no events.
        generation: As `kill_at` has it.
        before_poll: The same.
    """

    def count(frame: FrameType, event: str, function: Any) -> None:
        global _count
        if before_poll and event == "c_call" and _polls(function) and _generation == 0:
            before_poll(frame)
        if event not in ("c_call", "c_return") or not _is_into_the_system(function):
            return
        if _generation != generation:
            return
        _count += 1
        act(_count)

    global _hooked, _generation, _count
    _generation = _count = 0
    if not _hooked:
        os.register_at_fork(after_in_child=_be_born)
        _hooked = True
    _keep_alarms_out()
    sys.setprofile(count)


def _keep_alarms_out() -> None:
    """Have no handler of ALRM raise while `count` runs.

    Python no longer calls a profile function that has raised: nothing more would be counted, nor
    told of a poll. The timer of a lock wait fires again soon.
    """
    install = signal.signal

    def install_outside(signum: int, handler: Any) -> Any:
        def handle(number: int, frame: FrameType | None) -> None:
            if frame is None or frame.f_code.co_filename != __file__:
                handler(number, frame)

        is_ours = signum == signal.SIGALRM and callable(handler)
        return install(signum, handle if is_ours else handler)

    signal.signal = install_outside  # type: ignore[assignment]


def _be_born() -> None:
    global _generation, _count
    _generation += 1
    _count = 0


def _is_into_the_system(function: Any) -> bool:
    if getattr(function, "__module__", None) in _MODULES:
        return True
    owner = getattr(function, "__self__", None)
    return isinstance(owner, (sqlite3.Connection, sqlite3.Cursor))


def _polls(function: Any) -> bool:
    # Not one of the events: whoever is killed right before it has done nothing since the last.
    return isinstance(getattr(function, "__self__", None), _POLL) and function.__name__ == "poll"


def kill_this_process(*_: object, **__: object) -> NoReturn:
    """Stand in for a function at whose call a process is to be killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Losing:
    """One of these times.

    Args:
        between: What the requests go through.
        number: Of the answer that is lost, of those to requests since `begin`, from 1.
    """

    def __init__(self, between: Relay, number: int) -> None:
        self.number = number
        self._between = between
        self._first = 0

    def begin(self) -> None:
        """Count requests, and lose an answer, from here on."""
        self._first = len(self._between.paths)
        lose = self._first + self.number
        self._between.listen(after=lambda at, _path: at == lose)

    def asked(self) -> int:
        """How many requests there have been since."""
        return len(self._between.paths) - self._first


def each_answer_lost(between: Relay, *, more_than: int, stride: int = 1) -> Iterator[Losing]:
    """Once for each answer that could be lost, and once more when there are no more of them.

    Args:
        between: What the requests go through.
        more_than: So many have to be lost at least, and one more.
        stride: Only every so many-th.
    """
    number = asked = 0
    while number <= asked:
        number += stride
        losing = Losing(between, number)
        yield losing
        asked = losing.asked()
    assert asked > more_than


# Of what is killed at each of its steps: every one of them, where a sweep else takes every n-th.
EVERY_KILL = bool(os.environ.get("LEASECTL_TEST_EVERY_KILL"))
# Of what many do at once: as many as people may have.
FULL_SIZE = bool(os.environ.get("LEASECTL_TEST_FULL_SIZE"))


class Victim:
    """A process that is killed at one of its requests.

    Args:
        between: What its requests go through.
        when: ``before`` the request is passed on, or ``after`` it was answered.
        fatal: The number of the request.
    """

    def __init__(self, between: Relay, when: str, fatal: int) -> None:
        self._fatal = len(between.paths) + fatal
        self._pids: list[int] = []
        between.listen(**{when: self._kill})

    def run(self, work: Callable[[], object]) -> bool:
        """Run it in a process; returns whether it was killed before its end."""
        self._pids.append(fork(work))
        code = ending(self._pids[0])
        assert code in (0, -signal.SIGKILL)
        return code != 0

    def _kill(self, at: int, _path: str) -> bool:
        if at == self._fatal:
            os.kill(eventually(lambda: self._pids)[0], signal.SIGKILL)
        return at >= self._fatal
