"""Killing a process at its k-th call into the system, for each k.

Between two calls into the system a process changes nothing that others can see. So killing it
before and after each of them, one after the other, leaves nothing out and nothing to luck.
"""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import sys
from types import FrameType
from typing import Any, Callable, NoReturn

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
    """Have something be done at each event of this process, which is given its number.

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
    sys.setprofile(count)


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
