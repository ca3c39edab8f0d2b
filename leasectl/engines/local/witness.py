"""Let others pass waiters that don't claim when it is their turn.

A process that makes a claim possible wakes the witness (`LocalQueues`). The witness remembers which
ticket could claim what since when, and suspends a ticket that could for long enough. It also does
what such a waiter would do first: it removes dead waiters and frees what has expired. It ends
memberships whose time is over, too; a process that adds one wakes it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS, LostListener
from leasectl.engines.local.absent import (
    REMOVED_AT_ONCE,
    dead_ones,
    dead_passed,
    remove_dead,
    remove_dead_ones,
    remove_passed,
    suspend,
)
from leasectl.engines.local.queues import Waiting
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.wants import LocalSettings
from leasectl.engines.rules.turns import shares
from leasectl.model import Process
from leasectl.state.database import errors_of
from leasectl.state.directory import State
from leasectl.state.handles import NEEDS_ALL
from leasectl.state.rows import IS_FREE
from leasectl.system.clock import Clock, earliest
from leasectl.system.process import is_dead

# A witness that is so late wasn't running itself: perhaps no process was, so it starts again.
_LATE_SECONDS = 1.0
# Other processes get the lock between two parts.
_BETWEEN_PARTS_SECONDS = 0.1
# A dead waiter that holds no other back wakes no witness, so the witness looks for it by itself.
_LOOKS_FOR_DEAD_EVERY_SECONDS = 30.0

_NEEDS_ALL = f"SELECT 1 FROM handle WHERE id = ? AND {NEEDS_ALL}"

# Free resources, each with the fence of its last lease: a resource that was held in between has
# another.
_Free = frozenset[tuple[str, int]]


class Able(NamedTuple):
    """A ticket that could claim now or when the pace allows it, with all that it could choose."""

    pool_type: str
    ticket: Waiting
    free: _Free


class _Key(NamedTuple):
    """The key of a ticket."""

    pool_type: str
    number: int
    claim_key: str


class _Seen(NamedTuple):
    """Which resources a ticket could claim, and from when on, on the elapsed clock."""

    free: _Free
    since: float


class LocalWitness:
    """A witness of all pools of a state directory; there may be several.

    Args:
        state: Where they are kept.
        lost: Called, inside the transaction, with expired claims and tickets of dead waiters.
        clock: Where times come from.
        has_ended: Returns whether one of the `guards` has ended.
    """

    def __init__(
        self,
        state: State,
        *,
        lost: LostListener,
        clock: Clock,
        has_ended: Callable[[Process], bool] = is_dead,
    ) -> None:
        self._state = state
        self._store = LocalStore(state, lost=lost, clock=clock)
        self._early_ends = self._store.early_ends
        self._memberships = self._store.memberships()
        self._settings = LocalSettings(self._store)
        self._clock = clock
        self._has_ended = has_ended
        self._seen: dict[_Key, _Seen] = {}
        self._has_more = False  # suspended tickets, of which some may be dead
        self._looks_for_dead_at = clock.elapsed() + _LOOKS_FOR_DEAD_EVERY_SECONDS

    def is_needed(self) -> bool:
        """Return whether a ticket waits behind another, or a membership is for a time only."""
        return bool(self._contended()) or self._memberships.any_ends()

    def guards(self) -> list[Process]:
        """Return the processes whose end frees an ended claim, or ends a membership."""
        return [*self._early_ends.guards(), *self._memberships.processes()]

    def has_any_guard_ended(self) -> bool:
        """Return whether one of those has ended."""
        return any(map(self._has_ended, self.guards()))

    def look(self) -> list[Able]:
        """See who could claim; suspend those who could for long enough, and return them.

        Raises:
            CorruptState, StateUnwritable: See `State.transaction`.
        """
        with errors_of(self._state.path("state.db")):
            first = self._first_due()
            if first is not None and self._clock.elapsed() > first + _LATE_SECONDS:
                self._seen = {}
            self._remove_passed()
            self._remove_dead()
            end = self._next_end()
            is_over = end is not None and end <= self._clock.elapsed()
            is_over = is_over or self.has_any_guard_ended()
            if not any(map(self._needs_change, self._able())) and not is_over:
                return []
            with self._state.transaction():
                return self._put_right()

    def due(self) -> float | None:
        """Return when to look next without a call, on the elapsed clock; None for never."""
        more = self._clock.elapsed() + _BETWEEN_PARTS_SECONDS if self._has_more else None
        dead = self._looks_for_dead_at if self._contended() else None
        return earliest(self._first_due(), self._next_end(), more, dead)

    def _remove_passed(self) -> None:
        """Remove some of the dead waiters that all others pass."""
        dead = dead_passed(self._state)
        self._has_more = len(dead) == REMOVED_AT_ONCE
        if dead:
            with self._state.transaction():
                remove_passed(self._store.queues, dead)

    def _remove_dead(self) -> None:
        """Remove tickets of dead waiters from contended queues, if it is time to."""
        now = self._clock.elapsed()
        if now < self._looks_for_dead_at:
            return
        queues = self._store.queues
        for pool_type in self._contended():
            dead = dead_ones(queues, pool_type)
            if dead:
                with self._state.transaction():
                    remove_dead_ones(queues, pool_type, dead[:REMOVED_AT_ONCE])
            if len(dead) > REMOVED_AT_ONCE:
                self._looks_for_dead_at = now + _BETWEEN_PARTS_SECONDS
                return
        self._looks_for_dead_at = now + _LOOKS_FOR_DEAD_EVERY_SECONDS

    def _put_right(self) -> list[Able]:
        """Suspend waiters that could have claimed, remove dead ones, free what has expired."""
        queues = self._store.queues
        self._early_ends.free_what_the_dead_had()
        ending = self._memberships.any_ends()
        for pool_type in self._store.pool_types() if ending else self._contended():
            self._store.expire(pool_type)
        late = [able for able in self._able() if self._needs_change(able)]
        for pool_type, ticket, _ in late:
            if ticket.is_dead:
                remove_dead(queues, pool_type, ticket)
            else:
                suspend(queues, pool_type, ticket)
        self._able()  # for those behind them, the time starts now
        return [able for able in late if not able.ticket.is_dead]

    def _able(self) -> list[Able]:
        """Return the tickets that could claim now, and remember since when."""
        now = self._clock.elapsed()
        before, self._seen = self._seen, {}
        found = []
        for pool_type in self._contended():
            due = self._settings.next_grant_at(pool_type) or 0.0  # no ticket can claim before
            for able in self._able_in(pool_type):
                seen = before.get(_key(able))
                if seen is None or not seen.free <= able.free:
                    seen = _Seen(frozenset(sorted(able.free)[: able.ticket.count]), now)
                self._seen[_key(able)] = seen._replace(since=max(seen.since, due))
                found.append(able)
                if self._settings.of(pool_type).pace_seconds:
                    break  # that ticket gets the next grant, whatever the others wait for
        found = [able for able in found if self._has_all(able)]
        self._seen = {_key(able): self._seen[_key(able)] for able in found}
        return found

    def _has_all(self, able: Able) -> bool:
        """Return whether a ticket's request could claim all that it needs, also in other pools.

        A request for several pools keeps what one of them has free until the others have enough.
        """
        key = able.ticket.claim_key
        if able.ticket.is_dead or not self._state.query(_NEEDS_ALL, key):
            return True
        return all(
            self._settings.next_grant_at(pool_type) is None
            and any(each.ticket.claim_key == key for each in self._able_in(pool_type))
            for pool_type, _, _ in self._store.queues.tickets_of(key)
        )

    def _able_in(self, pool_type: str) -> Iterator[Able]:
        """Yield the tickets that could claim now or when the pace allows it, the best first."""
        rows = self._state.query(
            f"SELECT name, fence FROM resource WHERE type = ? AND {IS_FREE}", pool_type
        )
        free = [(row["name"], row["fence"]) for row in rows]

        def could_use(ticket: Waiting, resource: tuple[str, int]) -> bool:
            return self._store.queues.could_use(ticket, resource[0])

        with closing(self._store.queues.in_order(pool_type)) as tickets:
            counting = (each for each in tickets if not each.suspended)
            for ticket, share in shares(counting, free, could_use):
                if len(share) >= ticket.count:
                    yield Able(pool_type, ticket, frozenset(share))

    def _needs_change(self, able: Able) -> bool:
        over = self._seen[_key(able)].since + SUSPENDED_AFTER_SECONDS
        return self._clock.elapsed() >= over or able.ticket.is_dead

    def _first_due(self) -> float | None:
        since = earliest(*(seen.since for seen in self._seen.values()))
        return None if since is None else since + SUSPENDED_AFTER_SECONDS

    def _next_end(self) -> float | None:
        """Return when the next claim or membership ends by itself, as far as waiters need it."""
        contended = self._contended()
        ends = [self._memberships.next_end(), *map(self._store.next_expiry, contended)]
        if self._store.is_any_special():  # a name comes to a pool as its lease expires elsewhere
            ends += map(self._memberships.next_look, contended)
        return earliest(*ends)

    def _contended(self) -> list[str]:
        rows = self._state.query("SELECT type FROM ticket GROUP BY type HAVING count(*) > 1")
        return [row["type"] for row in rows]


def _key(able: Able) -> _Key:
    return _Key(able.pool_type, able.ticket.number, able.ticket.claim_key)
