"""The pool of each name, in step with resources and claims.

A fact may say that a name moves, leaves or ends its time in the pool. This module carries that out
when the name's claim has ended or its time is over. Methods that change something belong inside
`State.transaction`, except those of `Members`, which begin one.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from leasectl.engines.local import member_rows
from leasectl.engines.local.absent import remove_what_is_over
from leasectl.engines.local.member_rows import is_free, member_of
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.events import MembershipChange, belonging_changes, membership_changes
from leasectl.engines.rules.membership import (
    Member,
    Pools,
    after_lifetime,
    after_release,
    check_unheld,
    grace_clock,
    lifetime_clock,
    pools_with_less,
)
from leasectl.engines.rules.possible import Unmet, unmet
from leasectl.errors import StateUnwritable
from leasectl.model import Claimant, Lease, Process, Request, Ticket, parse_process
from leasectl.state.reads import snapshot
from leasectl.state.rows import IS_FREE, IS_SPECIAL, parse_where
from leasectl.system.clock import earliest
from leasectl.system.process import is_dead

if TYPE_CHECKING:
    from leasectl.engines.local.store import LocalStore
    from leasectl.state.event import EventKind

_ENDS = f"SELECT process, ends_at FROM member WHERE {IS_SPECIAL}"
_ALONE = "SELECT count(*) < 2 FROM (SELECT 1 FROM ticket WHERE type = ? LIMIT 2)"
_FIRST = (  # in the order of claims
    "SELECT ends_at, process, "
    "cordoned OR leaves OR moves_to IS NOT NULL OR held_back_until IS NOT NULL AS is_closed "
    "FROM resource LEFT JOIN member ON member.name = resource.name "
    f"AND ({IS_SPECIAL}) WHERE type = ? AND {IS_FREE} ORDER BY fence, resource.name LIMIT ?"
)
_OPEN = (  # in the order of the index of free resources
    f"SELECT count(*) FROM (SELECT 1 FROM resource WHERE type = ? AND {IS_FREE} "
    "ORDER BY fence, name LIMIT ?)"
)
# The same columns as `LocalStore.free_resources`, for given names.
_CHOSEN = "SELECT name, lease_transitions, holder_identity FROM resource WHERE name = ?"


class LocalMembers:
    """The memberships of one state directory's names, as `Members`.

    Args:
        store: The pools.
        caller: Who changes them, for the record of events.
    """

    def __init__(self, store: LocalStore, caller: str) -> None:
        self._store = store
        self._state = store.state
        self._clock = store.clock
        self._caller = caller

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        if self._state.db.in_transaction:  # in a change or a snapshot
            return self._known(names)
        with suppress(StateUnwritable):  # on a full disk, expired ones are shown
            remove_what_is_over(self._store, self._store.pool_types())
        with snapshot(self._state):
            return self._known(names)

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        with self._state.transaction():
            for pool_type in self._store.pool_types():
                self._store.expire(pool_type)
            before, pools = self._known(names), self.pools()
            after = tuple(decide(each, pools) for each in before)
            if claimant is not None:
                check_unheld(after)
            self.write(before, after)
            leases = () if claimant is None else self._claim(after, claimant)
            return Updated(before, after, leases)

    def belonging(self) -> Pools:
        with snapshot(self._state):
            return self.pools()

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        with self._state.transaction() as db:
            before = self.pools()
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
            self.tell(belonging_changes(before, pools))

    def _known(self, names: Sequence[str] | None) -> tuple[Member, ...]:
        if names is not None:
            return tuple(map(self.member, names))
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

    # For the pools

    def pools(self) -> Pools:
        """Return the pools with their settings, and the expected pools."""
        patterns = self._state.query("SELECT pattern, type FROM expected_pattern")
        found = Pools(
            frozenset(self._store.pool_types()),
            patterns={row["pattern"]: row["type"] for row in patterns},
        )
        for row in self._state.query("SELECT type, grace_seconds FROM default_pool"):
            return found._replace(default=row["type"], grace_seconds=row["grace_seconds"])
        return found

    def member(self, name: str) -> Member:
        """Return the membership of a name."""
        return member_of(member_rows.read(self._state, name))

    # Requests

    def why_unmet(self, request: Request, capacity: int) -> Unmet | None:
        """Return why the pool of a request can't meet it now; None if it could.

        Args:
            request: The request.
            capacity: How many resources the pool has.
        """
        state, pool_type = self._state, request.type
        if not request.where and request.name is not None:
            named = self.member(request.name)
            if named.pool == pool_type and named.takes_holders:
                return None
        elif not request.where:
            # If so many are free and open to all, the open ones needn't be counted.
            if state.query(_OPEN, pool_type, request.count)[0][0] >= request.count:
                return None
            if request.count <= capacity - member_rows.closed_in(state, pool_type):
                return None
        return unmet(request, self._members(pool_type))

    def is_had_at_once(self, request: Request, pool: sqlite3.Row) -> bool:
        """Return whether a request gets free resources as they are: none of them needs a change.

        To find whether anything in a pool has expired, all its memberships have to be read, and
        there may be thousands. A claim takes only a few resources, and most often nothing of them
        has expired.

        Args:
            request: The request; its ticket is in the queue.
            pool: The row of `LocalStore.pool`.
        """
        state, now = self._state, self._clock.elapsed()
        if request.name is not None or request.where or not state.query(_ALONE, request.type)[0][0]:
            return False
        if pool["next_expiry"] is not None and pool["next_expiry"] <= now:
            return False
        first = state.query(_FIRST, request.type, request.count)
        return len(first) == request.count and not any(
            row["is_closed"] or self._is_over(row) for row in first
        )

    def _members(self, pool_type: str) -> list[Member]:
        return [member_of(row) for row in member_rows.read_pool(self._state, pool_type)]

    # Changes

    def write(
        self, before: Sequence[Member], after: Sequence[Member], *, is_told: bool = True
    ) -> None:
        """Write changed memberships, the pools included, and wake the waiters concerned.

        Args:
            before: Each membership before.
            after: Each membership after, in the same order.
            is_told: Write events.
        """
        changed = [(old, new) for old, new in zip(before, after) if new != old]
        for old, new in changed:
            self._put(old, new)
            if not (member_rows.is_plain(old) and member_rows.is_plain(new)):
                self._note(old, new)
                self._open_or_close(new.name)
        self._resize(changed)
        self._wake(changed)
        if is_told:
            self.tell(membership_changes(tuple(before), tuple(after)))

    def released(self, names: Sequence[str]) -> None:
        """Carry out the facts of released names, and wake the waiters concerned."""
        before = [self.member(name) for name in names]
        after = [self._after_release(each) for each in before]
        self.write(before, after)
        for each in after:
            self._open_or_close(each.name)

    def expire(self, pool_type: str) -> None:
        """Remove names whose time in a pool is over, and open those that were held back."""
        due = self._due(pool_type)
        elsewhere = {row["type"] for row in due} - {pool_type}
        for each in sorted(elsewhere):
            self._store.expire_claims(each)
        for row in self._due(pool_type) if elsewhere else due:
            self._look_at(row)

    def _due(self, pool_type: str) -> list[sqlite3.Row]:
        """Return the rows of names in a pool, or about to come to it, that are due for a change."""
        rows = member_rows.read_due(self._state, pool_type, self._clock.elapsed())
        processes = {row["process"] for row in rows if row["process"] is not None}
        ended = {each for each in processes if is_dead(parse_process(each))}
        return [row for row in rows if row["is_due"] or row["process"] in ended]

    def _look_at(self, row: sqlite3.Row) -> None:
        before, now = member_of(row), self._clock.elapsed()
        until = row["held_back_until"]
        if until is not None and until <= now:
            self._state.db.execute(
                "UPDATE member SET held_back_until = NULL WHERE name = ?", (before.name,)
            )
        after = after_lifetime(before) if self._is_over(row) else before
        if is_free(row):
            after = self._after_release(after)
        self.write([before], [after])
        if after == before and is_free(row) and self._open_or_close(before.name):
            self._store.queues.wake_for(row["type"], [before.name])

    def stay(self, pool_type: str) -> None:
        """Keep names where they are that were to move to a pool which is deleted."""
        rows = member_rows.read_special(self._state, pool_type)
        before = [member_of(row) for row in rows if row["moves_to"] == pool_type]
        self.write(before, [each._replace(moves_to=None) for each in before], is_told=False)

    def put_right(self, name: str) -> None:
        """Carry out what the facts of a name say, as far as that is possible now."""
        row = member_rows.read(self._state, name)
        before = member_of(row)
        if before.pool is None:
            member_rows.write(self._state, before, ends_at=None, held_back_until=None)
            return
        after = self._if_there(before)
        self.write([before], [after])
        self._open_or_close(name)
        self.expire(before.pool)

    def _after_release(self, member: Member) -> Member:
        return after_release(self._if_there(member))

    def _if_there(self, member: Member) -> Member:
        is_there = member.moves_to is None or member.moves_to in self._store.pool_types()
        return member if is_there else member._replace(moves_to=None)

    def _is_over(self, row: sqlite3.Row) -> bool:
        """Return whether a name's time in its pool is over."""
        if row["ends_at"] is not None and row["ends_at"] <= self._clock.elapsed():
            return True
        return row["process"] is not None and is_dead(parse_process(row["process"]))

    def is_any_over(self, pool_type: str) -> bool:
        """Return, without a change, whether `expire` would do anything."""
        return bool(self._due(pool_type))

    def next_look(self, pool_type: str) -> float | None:
        """Return when a membership in a pool ends, or a lease expires of a name that moves there.

        CLOCK_BOOTTIME, seconds; None for never.
        """
        return earliest(*member_rows.next_times(self._state, pool_type))

    def any_ends(self) -> bool:
        """Return whether any membership is for a time only."""
        rows = self._state.query(_ENDS)
        return any(row["process"] is not None or row["ends_at"] is not None for row in rows)

    def next_end(self) -> float | None:
        """Return when the next membership ends by a ttl, CLOCK_BOOTTIME; None for never."""
        return earliest(*(row["ends_at"] for row in self._state.query(_ENDS)))

    def processes(self) -> list[Process]:
        """Return the processes whose end ends a membership."""
        found = (row["process"] for row in self._state.query(_ENDS))
        return [parse_process(each) for each in found if each is not None]

    def _put(self, before: Member, after: Member) -> None:
        """Put a name into a pool, or take it out of all pools."""
        name, db = after.name, self._state.db
        if before.pool == after.pool:
            return
        if after.pool is None:
            self._take_claim_away(name)
            db.execute("DELETE FROM resource WHERE name = ?", (name,))
            db.execute("DELETE FROM ended WHERE name = ?", (name,))
        elif before.pool is None:
            db.execute("DELETE FROM member WHERE name = ?", (name,))
            db.execute(
                "INSERT INTO resource (name, type, fence, lease_transitions, labels) "
                "VALUES (?, ?, 0, 0, '')",
                (name, after.pool),
            )
        else:
            db.execute("UPDATE resource SET type = ? WHERE name = ?", (after.pool, name))

    def _take_claim_away(self, name: str) -> None:
        row = member_rows.read(self._state, name)
        if not is_free(row):
            self._store.take_claims_away(row["owner"], [name], is_ended=bool(row["is_ended"]))

    def _resize(self, changed: Sequence[tuple[Member, Member]]) -> None:
        """Update the capacity of pools."""
        gained = Counter(new.pool for old, new in changed if new.pool != old.pool)
        gained.subtract(old.pool for old, new in changed if new.pool != old.pool)
        for pool_type, by in gained.items():
            self._state.write_back()  # a lost log must not cost a pool
            self._state.db.execute(
                "UPDATE pool SET capacity = capacity + ? WHERE type = ?", (by, pool_type)
            )

    def _note(self, before: Member, after: Member) -> None:
        """Write a name's facts, and the times that belong to them."""
        row, now = member_rows.read(self._state, after.name), self._clock.elapsed()
        ends_at, until = row["ends_at"], row["held_back_until"]
        ttl = after.lifetime.ttl_seconds if after.lifetime else None
        if ttl is None or lifetime_clock(before, after) == "started":
            ends_at = None if ttl is None else now + ttl
        clock = grace_clock(before, after)
        if clock != "kept":
            grace = self.pools().grace_seconds if clock == "started" else 0.0
            until = now + grace if grace else None
        member_rows.write(self._state, after, ends_at=ends_at, held_back_until=until)
        if after.lifetime is not None:
            self._state.wake(self._state.witness_pipe)  # the witness will end it

    def _open_or_close(self, name: str) -> bool:
        """Open or close a free resource, as its facts say; return whether that was a change."""
        row = member_rows.read(self._state, name)
        if row["type"] is None or not is_free(row):
            return False
        until = row["held_back_until"] if member_of(row).takes_holders else None
        is_open = member_of(row).takes_holders and until is None
        wanted = (int(not is_open), until)
        if (row["closed"], row["expires_at"]) == wanted:
            return False
        self._state.db.execute(
            "UPDATE resource SET closed = ?, expires_at = ? WHERE name = ?", (*wanted, name)
        )
        return True

    def _wake(self, changed: Sequence[tuple[Member, Member]]) -> None:
        """Wake waiters after a change: all of a pool that has fewer or other resources."""
        came: dict[str, list[str]] = {}
        others: dict[str, None] = {}
        for before, after in changed:
            for pool_type in pools_with_less(before, after):
                others[pool_type] = None
            was_had = before.takes_holders and before.pool == after.pool and not before.by_default
            if after.pool is not None and after.takes_holders and not was_had:
                came.setdefault(after.pool, []).append(after.name)
        for pool_type in others:
            self._look_anew(pool_type)
        for pool_type, names in came.items():
            if pool_type not in others:
                self._store.queues.wake_for(pool_type, names)
                self._store.queues.wake_suspended(pool_type)

    def _look_anew(self, pool_type: str) -> None:
        """Wake all waiters of a pool whose resources have changed.

        Requests that can't be met now are suspended at once, since their waiters may have stopped.
        """
        queues = self._store.queues
        with closing(queues.in_order(pool_type)) as tickets:
            waiting = [each for each in tickets if not each.suspended]
        members = self._members(pool_type) if waiting else []
        number_open = sum(each.takes_holders for each in members)
        for each in waiting:
            if each.name is None and not each.where and each.count <= number_open:
                continue
            where = parse_where(each.where)
            if unmet(Request(pool_type, each.count, each.name, where=where), members) is not None:
                queues.suspend(pool_type, each)
        queues.wake_all(pool_type)

    def tell(self, changes: Iterable[MembershipChange]) -> None:
        """Write events of the changes of pools."""
        for each in changes:
            self.note("pool changed", *each)

    def note(self, kind: EventKind, pool_type: str, names: Sequence[str], reason: str = "") -> None:
        """Write an event of a pool."""
        self._state.events.add(
            self._clock.wall(),
            kind,
            pool_type,
            names,
            holder_identity=self._caller,
            count=len(names),
            reason=reason,
        )
