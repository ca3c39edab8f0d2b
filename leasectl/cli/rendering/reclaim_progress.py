"""The plan, progress and result of `reclaim`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from math import ceil
from typing import TypeVar

from leasectl.cli.rendering.output import note, show, show_json, when_due
from leasectl.cli.rendering.table import Column, number, output_width, shows_colour, table
from leasectl.cli.rendering.waiting import LiveLine, interrupts
from leasectl.reclaim.plan import Held, Wanted
from leasectl.reclaim.taking_back import Ground, Progress, preview
from leasectl.system.clock import boottime_seconds, earliest
from leasectl.system.poll import READABLE, Interrupt, Sleep, sleep_through
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given
from leasectl.text.wording import counted, printable, shorten

_COLUMNS = (
    Column("NAME", shrinks=3, at_least=12),
    number("HELD FOR"),
    Column("HOLDER", shrinks=1, at_least=16),
    Column("WHY", shrinks=2, at_least=16, cut="end"),
)


def show_plan(ground: Ground, wanted: Wanted, *, as_json: bool) -> None:
    """Show what would be marked once the delay is over, if all stays as it is; nothing changes."""
    held, adopted, step = preview(ground, wanted)
    unused = Counter(each.group for each in held if not each.is_in_use)
    found = [(each, _why_adopted(each)) for each in adopted]
    found += [(each, _why(each, wanted, unused)) for each in step.ask]
    if as_json:
        show_json([_as_json(each, why) for each, why in found])
    elif found:
        rows = [
            (e.name, format_duration(e.held_seconds), as_given(e.holder_identity, longest=300), why)
            for e, why in found
        ]
        show(table(_COLUMNS, rows, output_width(), colour=shows_colour()).text)
    in_use = sum(each.is_in_use for each in held)
    if in_use and not as_json:
        note(f"{counted(in_use, 'lease')} of the pool in use, as far as this machine can see")
    if step.ask and not as_json:
        note(f"would be asked for {when_due(wanted.delay_seconds)}, if still unused then")
    missing = step.missing - len(found)
    if missing > 0 and not as_json:
        note(
            f"{f'only {len(found)}' if found else 'none'} could be asked for, of "
            f"{counted(step.missing, 'lease')} wanted back; the rest is in use, kept by "
            "--leave-unused, or not held"
        )
    if not found and not missing and not as_json:
        note("no lease needs to be taken back")


def _why_adopted(each: Held) -> str:
    mark = each.mark
    if mark is None:
        return ""
    answer = "ready" if mark.state == "ready" else "no answer yet"
    return f"marked already by {printable(mark.asked_by, longest=200)}: {answer}"


def _why(each: Held, wanted: Wanted, unused: Counter[str]) -> str:
    if wanted.names is not None:
        return "named"
    if wanted.longer_than_seconds is not None:
        return f"held for longer than {format_duration(wanted.longer_than_seconds)}"
    number = unused[each.group]
    which = "the only unused name" if number == 1 else f"one of {number} unused names"
    if wanted.group_by is None:
        return f"{which} of its handle"
    value = printable(each.group, longest=200)
    return f"{which} with {wanted.group_by}={value}"


def _as_json(each: Held, why: str) -> dict[str, object]:
    return {
        "name": each.name,
        "fence": each.fence,
        "holder": each.holder_identity,
        "held_seconds": round(each.held_seconds, 3),
        "marked": each.mark is not None,
        "why": why,
    }


Result = TypeVar("Result")


def run(
    steps: Generator[Sleep, set[int], Result], progress: ReclaimProgress, *, prints: bool
) -> Result:
    """Run a reclaim and show its progress; a signal ends it.

    Args:
        steps: Of the reclaim.
        progress: Shows the progress.
        prints: The result is printed, so the reclaim also ends when stdout has no reader any more.
    """
    with SignalTrap() as trap:
        ends = interrupts(trap, None) if prints else [Interrupt(trap.fd, READABLE, trap.check)]
        return sleep_through(progress.while_sleeping(steps), interrupts=ends)


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
        missing = f"{counted(progress.missing, 'lease')} still to come back"
        if not progress.missing:
            return "no lease to ask for at the moment"
        if progress.asked:
            return f"{missing}, {progress.asked} asked for; waiting for answers"
        if progress.look_in_seconds is None:
            return missing
        left = max(0.0, progress.look_in_seconds - (boottime_seconds() - self._known_at))
        return f"{missing}; the next is asked for in {format_duration(ceil(left))} at the earliest"
