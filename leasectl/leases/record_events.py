"""Events of handles on backends without pools.

Each is written inside `State.transaction`, beside the change of the record. A backend with pools
writes its own events, and these functions then write none. Nor do they for a handle that was
adopted only to be given back: its grant is an event of the process that got it, if it has records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from leasectl.backends.kinds import kind_of_handle
from leasectl.model import Handle, Lease, ReleasedBy
from leasectl.state.directory import State
from leasectl.state.handles import seconds_since
from leasectl.system.clock import Clock
from leasectl.text.naming import build_url_in

if TYPE_CHECKING:
    from leasectl.state.event import EventKind

# Why a lease was lost, as its server says.
IS_GONE = "its server no longer had it"
# Why a lease couldn't be given back.
UNACCOUNTED = "the lease proxy doesn't know it; Boskos may keep it leased for half an hour"


class RecordEvents:
    """Writes the events of the handles of one state directory.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def queued(self, handle: Handle) -> None:
        """Record that a request is about to be sent."""
        self._tell("queued", handle)

    def granted(self, handle: Handle, leases: Sequence[Lease], *, wait: float) -> None:
        """Record that a request was granted, so many seconds after it was sent."""
        self._tell("granted", handle, [lease.name for lease in leases], wait=wait)

    def gave_up(self, handle: Handle, why: str, *, wait: float | None = None) -> None:
        """Record that a request has failed; by default it began when its record was created."""
        if wait is None:
            wait = self._since("queued", handle)
        self._tell("gave up", handle, wait=wait, reason=why)

    def released(self, handle: Handle, names: Sequence[str], *, by: ReleasedBy) -> None:
        """Record that a handle's leases were released."""
        self._end("released", handle, names, by=by)

    def not_released(self, handle: Handle, names: Sequence[str], *, by: ReleasedBy) -> None:
        """Record that a handle's leases can't be given back, and may stay leased for a time."""
        self._end("not released", handle, names, by=by, reason=UNACCOUNTED)

    def lost(self, handle: Handle, names: Sequence[str], *, reason: str) -> None:
        """Record that a handle's leases are gone: its server no longer has them."""
        self._end("lost", handle, names, by="removal", reason=reason)
        self._end("released", handle, names, by="removal")

    def _end(
        self,
        kind: EventKind,
        handle: Handle,
        names: Sequence[str],
        *,
        by: ReleasedBy,
        reason: str = "",
    ) -> None:
        if names and handle.state == "held":
            hold = self._since("granted", handle)
            self._tell(kind, handle, names, hold=hold, by=by, reason=reason)

    def _since(self, what: Literal["queued", "granted"], handle: Handle) -> float | None:
        return seconds_since(self._state, handle.id, what, now=self._clock.elapsed())

    def _tell(
        self,
        event: EventKind,
        handle: Handle,
        names: Sequence[str] = (),
        *,
        wait: float | None = None,
        hold: float | None = None,
        by: str = "",
        reason: str = "",
    ) -> None:
        kind = kind_of_handle(handle)
        if kind.has_pools or kind.grants_nothing or handle.adopted_claim is not None:
            return
        self._state.events.add(
            self._clock.wall(),
            event,
            handle.request.type,
            names,
            backend=handle.backend,
            handle=handle.id,
            acquisition=handle.acquisition,
            holder_identity=handle.holder_identity,
            count=handle.request.count,
            priority=handle.request.priority,
            wait_seconds=wait,
            hold_seconds=hold,
            by=by,
            reason=reason,
            build_url=build_url_in(handle.request.labels),
        )
