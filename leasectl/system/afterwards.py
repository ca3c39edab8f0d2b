"""What nobody waits for: a command does it when it has answered, a process that goes on at once.

Such work may be left undone at any instant, it raises nothing and takes a bounded time.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Callable

_left: list[Callable[[], object]] = []
_goes_on = False


def leave(work: Callable[[], object]) -> None:
    """Have something done that can as well be done by somebody else, or never."""
    if _goes_on:
        threading.Thread(target=_do, args=(work,), name="leasectl-afterwards", daemon=True).start()
    else:
        _left.append(work)


def go_on() -> None:
    """This process answers many, one after the other: a thread does what is left from now on."""
    global _goes_on
    _goes_on = True


def finish() -> None:
    """Do what was left; all that this process had to say has been said."""
    while _left:
        _do(_left.pop())


def _do(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()
