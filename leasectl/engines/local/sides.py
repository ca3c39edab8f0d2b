"""The parts of an engine other than queues, loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener
from leasectl.engines.local.store import LocalStore
from leasectl.state.directory import State
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.local.members import LocalMembers
    from leasectl.engines.local.notes import LocalNotes
    from leasectl.engines.local.pools import LocalPools
    from leasectl.engines.local.values import LocalValues
    from leasectl.state.event_log import StateEventLog


class LocalSides:
    """The other parts of one state directory's pools.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Called, inside the transaction, with claims that expired or were taken by force.
        caller: Who creates and changes pools, for the record of events.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock, caller: str = "") -> None:
        self._state = state
        self._lost = lost
        self._clock = clock
        self._caller = caller

    @property
    def pools(self) -> LocalPools:
        from leasectl.engines.local.pools import LocalPools

        return LocalPools(self._state, lost=self._lost, clock=self._clock, caller=self._caller)

    @property
    def events(self) -> StateEventLog:
        from leasectl.state.event_log import StateEventLog

        return StateEventLog(self._state)

    @property
    def members(self) -> LocalMembers:
        from leasectl.engines.local.members import LocalMembers

        return LocalMembers(self._state, self._store(), clock=self._clock, caller=self._caller)

    @property
    def notes(self) -> LocalNotes:
        from leasectl.engines.local.notes import LocalNotes

        return LocalNotes(self._state, self._store(), freed=self._lost, clock=self._clock)

    @property
    def values(self) -> LocalValues:
        from leasectl.engines.local.values import LocalValues

        return LocalValues(self._state, self._store(), clock=self._clock)

    def _store(self) -> LocalStore:
        return LocalStore(self._state, lost=self._lost, clock=self._clock)
