"""How a reclaim is going, for people: a live line on a terminal, else a line now and then."""

from __future__ import annotations

from collections.abc import Generator
from math import ceil

from leasectl.cli.shown.waiting import LiveLine, interrupts
from leasectl.reclaim.taking_back import Progress
from leasectl.system.clock import boottime_seconds, earliest
from leasectl.system.poll import READABLE, Interrupt, Sleep, sleep_through
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration
from leasectl.text.width import shorten
from leasectl.text.wording import counted
from leasectl.typed.hints import TypeVar

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
    """Progress of one reclaim; what it says is said again on a terminal, or after a while.

    Args:
        pool_type: The pool.
        quiet: Say nothing, and so never wake up to do so.
    """

    def __init__(self, pool_type: str, *, quiet: bool) -> None:
        self._pool_type = pool_type
        self._quiet = quiet
        self.line = LiveLine()
        self._progress: Progress | None = None
        self._known_at = 0.0
        self._said: set[tuple[int, bool]] = set()  # as long as so many are missing

    def note(self, progress: Progress) -> None:
        """A look has shown this."""
        self._progress, self._known_at = progress, boottime_seconds()
        said = (progress.missing, bool(progress.asked))
        if not self._quiet and (self.line.is_live or said not in self._said):
            self._say()
        # Who keeps what is asked for is asked again and again: that is no news.
        self._said = {each for each in self._said if each[0] == progress.missing} | {said}

    def while_sleeping(
        self, steps: Generator[Sleep, set[int], Result]
    ) -> Generator[Sleep, set[int], Result]:
        """The same steps, with sleeps that end now and then, to say how it is going."""
        if self._quiet:
            return (yield from steps)
        try:
            wanted = next(steps)
            while True:
                at = boottime_seconds() + self.line.seconds
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
            self.line.clear()

    def _say(self) -> None:
        if self._progress is None:
            return
        text = f'reclaim from "{self._pool_type}": {self._said_of(self._progress)}'
        self.line.say(text, lambda width: shorten(text, width, cut="end"))

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
