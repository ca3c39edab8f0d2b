"""Memberships in this process's memory, as `Members`."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.event_words import belonging_changes, membership_changes
from leasectl.engines.members import Decide, Updated
from leasectl.engines.membership import Member, Pools, check_unheld
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Claimant
from leasectl.typed.hints import Callable


class MemoryMembers:
    """The memberships of one process; any number of threads may use it.

    Args:
        store: What is in its pools.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._memberships = store.memberships

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        with self._store.lock:
            for pool in self._store.pools.values():
                self._store.expire(pool)
            wanted = self._memberships.names() if names is None else names
            return tuple(map(self._memberships.member, wanted))

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        with self._store.lock:
            before, pools = self.members(names), self._memberships.pools()
            after = tuple(decide(each, pools) for each in before)
            if claimant is not None:
                check_unheld(after)
            self._memberships.write(before, after)
            self._store.events.members_changed(membership_changes(before, after))
            if claimant is None:
                return Updated(before, after)
            leases = self._store.claim_at_once([each.name for each in after], claimant)
            return Updated(before, after, leases)

    def belonging(self) -> Pools:
        with self._store.lock:
            return self._memberships.pools()

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        with self._store.lock:
            before = self._memberships.pools()
            self._memberships.belonging = after = change(before)
            self._store.events.members_changed(belonging_changes(before, after))
