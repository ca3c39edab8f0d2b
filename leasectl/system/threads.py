"""Start threads, and report their errors.

Signals are the main thread's: the others block all of them. No exception leaves a thread, since
Python would print a traceback, and the waiters that the thread serves would wait for ever.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasectl.errors import Interrupted, LeaseError

if TYPE_CHECKING:
    from threading import Thread

_AGAIN_SECONDS = 1.0


class NoThread(LeaseError):
    """The process limit is reached, or memory is used up."""

    def __init__(self) -> None:
        super().__init__("can't start a thread; raise the limit on processes: ulimit -u")


def _log(line: str) -> None:
    import logging

    logging.getLogger("leasectl").error(line)


_report: Callable[[str], object] = _log
_reported: set[str] = set()


def report_by(report: Callable[[str], object]) -> None:
    """Set the function that gets a line for people when an error ends the work of a thread."""
    global _report
    _report = report


def start_thread(
    name: str,
    work: Callable[[], object],
    *,
    failed: Callable[[], object] = lambda: None,
    repeats: bool = False,
) -> Thread:
    """Start a daemon thread.

    Args:
        name: What `report_by` and debuggers call it.
        work: The thread's work. `Interrupted` ends it quietly: this process is about to end.
        failed: Called in the thread after an error, so that nothing waits for it in vain.
        repeats: Begin the work again a moment after an error; it has to be a loop that goes on
            from what it finds.

    Raises:
        NoThread: There can't be one more.
    """
    import threading

    thread = threading.Thread(
        target=_run, args=(name, work, failed, repeats), name=f"leasectl-{name}", daemon=True
    )
    # A thread inherits the mask. If it blocked signals itself, it could get one before that.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return thread


def _run(
    name: str, work: Callable[[], object], failed: Callable[[], object], repeats: bool
) -> None:
    while True:
        try:
            work()
            return
        except Interrupted:
            return
        except BaseException as error:
            with contextlib.suppress(BaseException):
                _tell(name, error)
            with contextlib.suppress(BaseException):
                failed()
        if not repeats:
            return
        time.sleep(_AGAIN_SECONDS)


def _tell(name: str, error: BaseException) -> None:
    """Report an error, the same one of many threads and tries only once."""
    line = f"unexpected failure of the thread {name}: {type(error).__name__}: {error}"
    if line not in _reported and len(_reported) < 100:
        _reported.add(line)
        _report(line)
