"""What is told about a wait: position, time, holders."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasectl.backends.contract import Progress
from leasectl.backends.kinds import pools_of
from leasectl.cli.rendering.waiting_line import Said
from leasectl.errors import LeaseError
from leasectl.model import Request
from leasectl.system.clock import earliest
from leasectl.text.durations import format_duration
from leasectl.text.naming import wants_whole_pool, work_in
from leasectl.text.wording import shorten

if TYPE_CHECKING:
    from leasectl.leases.service import Service
    from leasectl.pools.expected_wait import RecentHolds

# The service of a wait's backend; None as long as none is opened.
Opened = Callable[[], "Service | None"]


# Of a holder where room is short: a build's number has 19 digits; a user at some host may be long.
_HOLDER_CELLS = 20
_LOOK_FOR_CIRCLE_SECONDS = 5.0


class WaitingFacts:
    """Says how one wait is going.

    Args:
        request: What is waited for.
        wait_seconds: For how long at most; None for no limit.
        service: Where the lease comes from: its events give an estimate, its pools show circles.
    """

    def __init__(self, request: Request, wait_seconds: float | None, service: Opened) -> None:
        self._request = request
        self._wait_seconds = wait_seconds
        self._service = service
        self._holds: RecentHolds | None = None
        self._looked_at_seconds = 0.0
        self._circle: str | None = None

    def tell(self, progress: Progress) -> list[Said]:
        """What there is to tell now, in order."""
        types = work_in(self._request.labels) or pools_of(self._request)
        waited = f"waited {format_duration(progress.waited_seconds)}"
        if progress.position is None:
            parts = [Said(f"waiting for {types}: {waited}")]
        else:
            parts = [
                Said(f"waiting for {types}: position {progress.position}"),
                Said(f"{progress.held}/{progress.capacity} held", goes=3),
                Said(waited),
                *self._why(progress),
                *self._circular(progress),
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
        rule = progress.closed or _held_back_by(_counted(self._request, progress), progress)
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

    def _circular(self, progress: Progress) -> list[Said]:
        """The holder that waits, in turn, for a lease of this request's job.

        Only who holds something can be in a circle, so the pools are looked at for no one else.
        """
        if progress.waited_seconds - self._looked_at_seconds >= _LOOK_FOR_CIRCLE_SECONDS:
            self._looked_at_seconds = progress.waited_seconds
            with contextlib.suppress(LeaseError):
                self._circle = self._holder_in_circle()
        if self._circle is None:
            return []
        return [Said(f"circular wait: ends only if {self._circle} releases a lease or gives up")]

    def _holder_in_circle(self) -> str | None:
        service = self._service()
        if service is None:
            return None
        handles = service.handles.active()
        if not any(each.state == "held" for each in handles):
            return None
        from leasectl.pools import admin
        from leasectl.pools.circular_waits import circular_waits

        own = {
            each.holder_identity
            for each in handles
            if each.waiter is not None and each.waiter.pid == os.getpid()
        }
        waits = circular_waits(admin.as_recorded(service))
        return next((each.holders[0] for each in waits if each.waiter in own), None)

    def _is_next(self, progress: Progress) -> bool:
        """Whether nothing but the pace keeps the leases from this request."""
        request = _counted(self._request, progress)
        is_free = progress.held + request.count <= progress.capacity
        is_any = request.name is None and not request.where
        return progress.position == 1 and is_free and is_any

    def _likely_seconds(self, progress: Progress) -> float | None:
        """The likely rest of the wait, in seconds; None if it can't be estimated."""
        request = self._request
        if request.other_types or request.name is not None or request.where:
            return None
        with contextlib.suppress(LeaseError):
            return self._estimate(progress)
        return None

    def _estimate(self, progress: Progress) -> float | None:
        from leasectl.pools.expected_wait import Place, RecentHolds, expected_wait

        if self._holds is None:
            service = self._service()
            if service is None:
                return None
            self._holds = RecentHolds(service.events, self._request.type)
        place = Place(
            position=progress.position or 1,
            count=_counted(self._request, progress).count,
            capacity=progress.capacity,
            held=progress.held,
            longest_age_seconds=progress.longest_held_seconds,
            pace_seconds=progress.pace_seconds,
            next_grant_in_seconds=progress.next_grant_in_seconds or 0.0,
        )
        return expected_wait(place, self._holds.seconds())


def _counted(request: Request, progress: Progress) -> Request:
    """Return a request with the count of a whole pool, if it asks for that."""
    is_whole = wants_whole_pool(request.labels)
    return request._replace(count=progress.capacity) if is_whole else request


def _about(seconds: float) -> str:
    """A time that is a guess, in whole minutes."""
    return "less than 1m" if seconds < 60 else format_duration(60 * math.ceil(seconds / 60))


def _longest(progress: Progress, identity: str) -> Said:
    from leasectl.pools.overview import parse_holder

    held = format_duration(progress.longest_held_seconds)
    holder = parse_holder(identity)
    named = shorten(holder.build or holder.owner or identity, _HOLDER_CELLS)
    return Said(
        f"oldest lease {held} by {identity}",
        goes=1,
        # What tells one job from another; the rest is in `status`.
        short=f"oldest {held} by {named}",
    )


def _held_back_by(request: Request, progress: Progress) -> str | None:
    """Which rule keeps a request from what is free."""
    from leasectl.backends.pool.closed import needs_of

    return "a request ahead goes first" if progress.position != 1 else needs_of(request) or None
