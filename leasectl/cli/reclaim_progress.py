"""How a reclaim is going, for people: a live line on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from math import ceil
from typing import TypeVar

from leasectl.cli.output import note
from leasectl.cli.terminal import obeys_escapes
from leasectl.cli.waiting import (
    LOG_REPORT_SECONDS,
    TERMINAL_REPORT_SECONDS,
    draw,
    interrupts,
)
from leasectl.reclaim.taking_back import Progress
from leasectl.system.clock import boottime_seconds, earliest
from leasectl.system.poll import READABLE, Interrupt, Sleep, sleep_through
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration
from leasectl.text.width import shorten
from leasectl.text.wording import counted

Result = TypeVar("Result")


def run(
    steps: Generator[Sleep, set[int], Result], progress: ReclaimProgress, *, prints: bool
) -> Result:
    """Do the steps of a reclaim, one after the other, and tell people; a signal ends them.

    Args:
        steps: Of the reclaim.
        progress: Who tells people.
        prints: What comes of it is printed, so it ends as well when nobody reads that any more.
    """
    with SignalTrap() as trap:
        ends = interrupts(trap, None) if prints else [Interrupt(trap.fd, READABLE, trap.check)]
        return sleep_through(progress.while_sleeping(steps), interrupts=ends, now=boottime_seconds)


class ReclaimProgress:
    """Progress of one reclaim; what it says is said again as long as nothing changes.

    Args:
        pool_type: The pool.
        quiet: Say nothing, and so never wake up to do so.
    """

    def __init__(self, pool_type: str, *, quiet: bool) -> None:
        self._pool_type = pool_type
        self._quiet = quiet
        self._is_live = sys.stderr.isatty() and obeys_escapes(2)
        self._progress: Progress | None = None
        self._known_at = 0.0
        self._said: tuple[int, bool] | None = None
        self._is_shown = False

    def note(self, progress: Progress) -> None:
        """A look has shown this."""
        self._progress, self._known_at = progress, boottime_seconds()
        said = (progress.missing, bool(progress.asked))
        if not self._quiet and (self._is_live or said != self._said):
            self._say()
        self._said = said

    def warn(self, text: str) -> None:
        """Tell people something, where the live line was."""
        self.clear()
        note(text)

    def clear(self) -> None:
        """Take the live line away."""
        if self._is_shown:
            draw("")
            self._is_shown = False

    def while_sleeping(
        self, steps: Generator[Sleep, set[int], Result]
    ) -> Generator[Sleep, set[int], Result]:
        """The same steps, with sleeps that end now and then, to say how it is going."""
        if self._quiet:
            return (yield from steps)
        every = TERMINAL_REPORT_SECONDS if self._is_live else LOG_REPORT_SECONDS
        try:
            wanted = next(steps)
            while True:
                at = boottime_seconds() + every
                try:
                    woken = yield Sleep(wanted.fds, earliest(wanted.until, at))
                except BaseException as reason:
                    wanted = steps.throw(reason)
                    continue
                now = boottime_seconds()
                if woken or (wanted.until is not None and now >= wanted.until):
                    wanted = steps.send(woken)
                else:
                    self._say()
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            steps.close()
            self.clear()

    def _say(self) -> None:
        if self._progress is None:
            return
        text = f'reclaim from "{self._pool_type}": {self._said_of(self._progress)}'
        if not self._is_live:
            note(text)
            return
        try:
            width = max(20, (os.get_terminal_size(2).columns or 80) - 1)
        except OSError:
            return  # the terminal is gone
        self._is_shown = draw(shorten(text, width, cut="end"))

    def _said_of(self, progress: Progress) -> str:
        missing = f"{counted(progress.missing, 'lease')} to come back"
        if not progress.missing:
            return "nothing is to come back now"
        if progress.asked:
            return f"{missing}, {progress.asked} asked for; waiting for answers"
        if progress.look_in_seconds is None:
            return missing
        left = max(0.0, progress.look_in_seconds - (boottime_seconds() - self._known_at))
        return f"{missing}; the next is asked for in {format_duration(ceil(left))} at the earliest"
