"""Read and change memberships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from leasectl.engines.local import member_rows
from leasectl.engines.local.absent import remove_what_is_over
from leasectl.engines.local.store import LocalStore
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.events import belonging_changes
from leasectl.engines.rules.membership import Member, Pools, check_unheld
from leasectl.errors import StateUnwritable
from leasectl.model import Claimant, Lease, Ticket
from leasectl.state.reads import snapshot

# The same columns as `LocalStore.free_resources`, for given names.
_CHOSEN = "SELECT name, lease_transitions, holder_identity FROM resource WHERE name = ?"


class LocalMembers:
    """The memberships of one state directory.

    Args:
        store: The pools.
        caller: Who changes them, for the record of events.
    """

    def __init__(self, store: LocalStore, caller: str) -> None:
        self._state = store.state
        self._store = store
        self._memberships = store.memberships(caller)

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        if self._state.db.in_transaction:  # in a change or a snapshot
            return self._members(names)
        with suppress(StateUnwritable):  # on a full disk, expired ones are shown
            remove_what_is_over(self._store, self._store.pool_types())
        with snapshot(self._state):
            return self._members(names)

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        with self._state.transaction():
            for pool_type in self._store.pool_types():
                self._store.expire(pool_type)
            before, pools = self._members(names), self._memberships.pools()
            after = tuple(decide(each, pools) for each in before)
            if claimant is not None:
                check_unheld(after)
            self._memberships.write(before, after)
            leases = () if claimant is None else self._claim(after, claimant)
            return Updated(before, after, leases)

    def belonging(self) -> Pools:
        with snapshot(self._state):
            return self._memberships.pools()

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        with self._state.transaction() as db:
            before = self._memberships.pools()
            pools = change(before)
            db.execute("DELETE FROM expected_pattern")
            db.executemany(
                "INSERT INTO expected_pattern (pattern, type) VALUES (?, ?)",
                sorted(pools.patterns.items()),
            )
            db.execute("DELETE FROM default_pool")
            if pools.default is not None:
                db.execute(
                    "INSERT INTO default_pool (type, grace_seconds) VALUES (?, ?)",
                    (pools.default, pools.grace_seconds),
                )
            self._memberships.tell(belonging_changes(before, pools))

    def _members(self, names: Sequence[str] | None) -> tuple[Member, ...]:
        if names is not None:
            return tuple(map(self._memberships.member, names))
        return member_rows.known(member_rows.read_all(self._state))

    def _claim(self, members: Sequence[Member], claimant: Claimant) -> tuple[Lease, ...]:
        """Give free names of one pool to a claimant, past the pool's queue and pace."""
        pool = self._store.pool(claimant.request.type)
        number = pool["last_ticket"] + 1
        self._state.db.execute(
            "UPDATE pool SET last_ticket = ? WHERE type = ?", (number, claimant.request.type)
        )
        return self._store.claim(
            Ticket(number, claimant),
            [self._state.query(_CHOSEN, each.name)[0] for each in members],
            grant=pool["last_grant"] + 1,
            wait=0.0,
        )
