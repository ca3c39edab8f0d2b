"""How far a simulation is, on a terminal, once it takes long."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType

from leasectl.cli.shown.terminal import obeys_escapes
from leasectl.errors import Interrupted
from leasectl.text.printable import printable
from leasectl.typed.hints import Callable

_LONG_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_JOBS_BETWEEN = 50  # looking at the clock takes time, too


class SimulateProgress:
    """A line that says how many jobs have ended; gone in the end.

    Args:
        jobs: How many there are in a run.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._done = 0
        self._what = ""
        self._is_live = obeys_escapes(2)
        self._due = monotonic() + _LONG_SECONDS
        self._is_shown = False

    def __enter__(self) -> SimulateProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._write("")
        if kind is KeyboardInterrupt:
            import signal

            raise Interrupted(signal.SIGINT) from None  # of which click says nothing

    def begin(self, what: str) -> Callable[[], object]:
        """A run begins; what is returned is to be called as each of its jobs ends."""
        self._what, self._done = what, 0
        return self._job_done

    def _job_done(self) -> None:
        self._done += 1
        if self._is_live and not self._done % _JOBS_BETWEEN:
            now = monotonic()
            if now >= self._due:
                self._due = now + _EVERY_SECONDS
                share = self._done / self._jobs
                self._write(f"{printable(self._what, longest=40)}: {share:.0%} of the jobs")

    def _write(self, text: str) -> None:
        self._is_shown = bool(text)
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
