"""What nobody waits for: a command does it when it has answered, a process that goes on at once.

Such work can be left undone at any instant, takes a bounded time, and whoever has done it once has
done it for all who left it: so of what a command leaves, only the last is done.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Callable

_left: Callable[[], object] | None = None
_goes_on = False


def leave(work: Callable[[], object]) -> None:
    """Have something done that somebody else may as well do, later, or nobody.

    Args:
        work: Whatever it raises is no matter.
    """
    global _left
    if not _goes_on:
        _left = work
        return
    thread = threading.Thread(target=_do, args=(work,), name="leasectl-afterwards", daemon=True)
    with contextlib.suppress(RuntimeError):  # there may be no more
        thread.start()


def go_on() -> None:
    """This process answers many, one after the other: threads do what is left from now on."""
    global _goes_on
    _goes_on = True


def finish() -> None:
    """Do what was left; all that this process had to say has been said."""
    global _left
    work, _left = _left, None
    if work is not None:
        _do(work)


def _do(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()
