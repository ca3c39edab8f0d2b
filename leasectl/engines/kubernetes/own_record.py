"""Record events in the state directory.

An event is written with the next change of the database, which is that of the handle's record; if
none follows, at once. So it is kept even if the cluster rejects events, or gets them too late.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leasectl.errors import LeaseError
from leasectl.state.directory import State
from leasectl.state.event import Event, EventKind, add_event

if TYPE_CHECKING:
    from leasectl.engines.pool_admin import EventLog

# A change of a handle's record follows right after these.
_FOLLOWED: tuple[EventKind, ...] = ("queued", "granted", "gave up", "released")


class OwnRecord:
    """The events of one namespace that this state directory has.

    Args:
        state: The opened state directory.
        which: What tells the namespace from all others.
    """

    def __init__(self, state: State, which: str) -> None:
        self._state = state
        self._backend = f"kubernetes:{which}"

    @property
    def is_kept(self) -> bool:
        """Whether any are to be written."""
        return self._state.events.kept_number > 0

    def add(self, event: Event) -> None:
        """Record an event."""
        if event.kind in _FOLLOWED:
            self._add(event)
        else:
            with contextlib.suppress(LeaseError), self._state.transaction():
                self._add(event)

    def log(self) -> EventLog:
        """Those that are there."""
        from leasectl.state.event_log import StateEventLog

        return StateEventLog(self._state, backend=self._backend)

    def _add(self, event: Event) -> None:
        add_event(self._state.events, event, backend=self._backend)
