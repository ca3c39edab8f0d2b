"""What is told of a wait: its place, for how long, what it waits for, and who holds longest."""

from __future__ import annotations

import contextlib
import math

from leasectl.backends.contract import Progress
from leasectl.backends.kinds import either
from leasectl.cli.shown.waiting_line import Said
from leasectl.errors import LeaseError
from leasectl.model import Request
from leasectl.system.clock import earliest
from leasectl.text.durations import format_duration
from leasectl.text.naming import work_in
from leasectl.text.width import shorten
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.pools.expected_wait import RecentHolds

# Where the events of a wait's backend are; None as long as none is opened.
Events = Callable[[], "EventLog | None"]


# Of a holder where room is short: a build's number has 19 digits; a user at some host may be long.
_HOLDER_CELLS = 20
_WHERE_CELLS = 40


class WaitingFacts:
    """Says how one wait is going.

    Args:
        request: What is waited for.
        wait_seconds: For how long at most; None for no limit.
        events: Of the pool, for an estimate; LeaseError where there are none.
    """

    def __init__(self, request: Request, wait_seconds: float | None, events: Events) -> None:
        self._request = request
        self._wait_seconds = wait_seconds
        self._events = events
        self._holds: RecentHolds | None = None

    def tell(self, progress: Progress) -> list[Said]:
        """What there is to tell now, in order."""
        types = work_in(self._request.labels) or either(self._request.types)
        waited = f"waited {format_duration(progress.waited_seconds)}"
        if progress.position is None:
            parts = [Said(f"waiting for {types}: {waited}")]
        else:
            parts = [
                Said(f"waiting for {types}: place {progress.position}"),
                Said(f"{progress.held}/{progress.capacity} held", goes=3),
                Said(waited),
                *self._why(progress),
            ]
        wait = self._wait_seconds
        left = earliest(
            None if wait is None else wait - progress.waited_seconds, progress.gives_up_in_seconds
        )
        if left is not None:
            in_text = format_duration(math.ceil(max(0.0, left)))
            parts.append(Said(f"gives up in {in_text}", goes=5))
        if progress.longest_holder is not None:
            parts.append(_longest(progress, progress.longest_holder))
        return parts

    def _why(self, progress: Progress) -> list[Said]:
        """What it waits for, and for how long that is likely to take."""
        said = []
        rule = progress.closed or _held_back_by(self._request, progress)
        is_paced = progress.next_grant_in_seconds is not None
        if is_paced:
            seconds = format_duration(math.ceil(progress.next_grant_in_seconds or 0.0))
            said.append(Said(f"next grant in {seconds}", goes=4 if self._is_next(progress) else 2))
        elif rule is not None and progress.held < progress.capacity:
            said.append(Said(rule, goes=2))
        if not (is_paced and self._is_next(progress)):
            likely = self._likely_seconds(progress)
            if likely is not None:
                short = "likely <1m more" if likely < 60 else None
                said.append(Said(f"likely {_about(likely)} more", goes=4, short=short))
        return said

    def _is_next(self, progress: Progress) -> bool:
        """Whether nothing but the pace keeps the leases from this request."""
        request = self._request
        is_free = progress.held + request.count <= progress.capacity
        is_any = request.name is None and not request.where
        return progress.position == 1 and is_free and is_any

    def _likely_seconds(self, progress: Progress) -> float | None:
        """How long it is likely to wait yet; None where nobody can tell."""
        request = self._request
        if request.other_types or request.name is not None or request.where:
            return None
        with contextlib.suppress(LeaseError):
            return self._estimate(progress)
        return None

    def _estimate(self, progress: Progress) -> float | None:
        from leasectl.pools.expected_wait import Place, RecentHolds, expected_wait

        if self._holds is None:
            events = self._events()
            if events is None:
                return None
            self._holds = RecentHolds(events, self._request.type)
        place = Place(
            position=progress.position or 1,
            count=self._request.count,
            capacity=progress.capacity,
            held=progress.held,
            longest_age_seconds=progress.longest_held_seconds,
            pace_seconds=progress.pace_seconds,
            next_grant_in_seconds=progress.next_grant_in_seconds or 0.0,
        )
        return expected_wait(place, self._holds.seconds())


def _about(seconds: float) -> str:
    """A time that is a guess, in whole minutes."""
    return "less than 1m" if seconds < 60 else format_duration(60 * math.ceil(seconds / 60))


def _longest(progress: Progress, identity: str) -> Said:
    from leasectl.pools.shown import parse_holder

    held = format_duration(progress.longest_held_seconds)
    holder = parse_holder(identity)
    named = shorten(holder.build or holder.owner or identity, _HOLDER_CELLS)
    return Said(
        f"longest {held} by {identity}",
        goes=1,
        # What tells one job from another; the rest is in `status`.
        short=f"longest {held} by {named}",
    )


def _held_back_by(request: Request, progress: Progress) -> str | None:
    """Which rule keeps a request from what is free."""
    if progress.position != 1:
        return "first come, first served"
    if request.name is not None:
        return f"only {request.name} will do"
    if request.where:
        from leasectl.text.properties import written

        return f"only {shorten(' '.join(written(request.where)), _WHERE_CELLS)} will do"
    if request.count > 1:
        return f"all {request.count} at once, or none"
    return None
