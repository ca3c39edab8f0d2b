"""A pool's settings and pace; requests that only some resources meet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.local.member_rows import parse_properties
from leasectl.engines.rules.membership import Properties
from leasectl.engines.rules.pace import after_change, after_grant, next_grant_at
from leasectl.engines.rules.possible import Want, matches, want_of
from leasectl.engines.rules.turns import left_to, next_granted
from leasectl.state import rows
from leasectl.state.directory import State
from leasectl.state.rows import insert

if TYPE_CHECKING:
    import sqlite3

    from leasectl.engines.local.store import LocalStore
    from leasectl.model import Request


class LocalSettings:
    """The settings of one state directory's pools.

    Args:
        store: The pools.
    """

    def __init__(self, store: LocalStore) -> None:
        self._state = store.state
        self._clock = store.clock

    def of(self, pool_type: str) -> PoolSettings:
        """Return the settings of a pool."""
        return self._row(pool_type)[0]

    def next_grant_at(self, pool_type: str) -> float | None:
        """Return when a pool's pace allows the next grant, on the elapsed clock; None for now."""
        settings, paid_until = self._row(pool_type)
        return next_grant_at(settings, paid_until, self._clock.elapsed())

    def allows(self, pool_type: str, particular: Sequence[Wanting]) -> tuple[bool, float | None]:
        """Return whether the pace allows a ticket a grant now.

        Args:
            pool_type: The pool, which has a pace.
            particular: Better tickets that wait for particular resources: if one of them can be
                met, the next grant is its own.

        Returns:
            Whether the grant may be made, and when the next may if that is later; None for now.
        """
        due = self.next_grant_at(pool_type)
        if due is not None or (particular and is_any_next(self._state, pool_type, particular)):
            return False, due
        return True, None

    def pay(self, pool_type: str) -> None:
        """Count a grant against the pace; inside its transaction."""
        settings, paid_until = self._row(pool_type)
        self._state.db.execute(
            "UPDATE pool_setting SET paid_until = ? WHERE type = ?",
            (after_grant(settings, paid_until, self._clock.elapsed()), pool_type),
        )

    def change(self, pool_type: str, settings: PoolSettings) -> None:
        """Change the settings of a pool; what it owes the pace, it owes the new one at most."""
        paid_until = after_change(settings, self._row(pool_type)[1], self._clock.elapsed())
        row = {"type": pool_type, **settings._asdict(), "paid_until": paid_until}
        insert(self._state.db, "pool_setting", row, replace=True)

    def _row(self, pool_type: str) -> tuple[PoolSettings, float]:
        rows = self._state.query(
            "SELECT pace_seconds, burst, aging_seconds, paid_until FROM pool_setting "
            "WHERE type = ?",
            pool_type,
        )
        for pace_seconds, burst, aging_seconds, paid_until in rows:
            return PoolSettings(pace_seconds, burst, aging_seconds), paid_until
        return NO_SETTINGS, 0.0


_parse_where = lru_cache(maxsize=64)(rows.parse_where)  # the same tickets are read repeatedly
_IS_FREE = f"SELECT 1 FROM resource WHERE name = ? AND type = ? AND {rows.IS_FREE}"
_FREE = (
    "SELECT resource.name AS name, lease_transitions, holder_identity, properties FROM resource "
    "LEFT JOIN member ON member.name = resource.name "
    f"WHERE type = ? AND {rows.IS_FREE} ORDER BY fence, resource.name"
)


class Wanting(Protocol):
    """What is needed of a ticket of `LocalQueues`."""

    name: str | None
    where: str
    count: int


class _Free(NamedTuple):
    """A free resource of `LocalStore.free_resources`, with its properties."""

    row: sqlite3.Row
    properties: Properties


def matching(state: State, wheres: Sequence[str], name: str) -> frozenset[str]:
    """Return those of some required properties, as in records, that a resource has."""
    found = state.query("SELECT properties FROM member WHERE name = ?", name)
    properties = parse_properties(found[0]["properties"]) if found else ()
    return frozenset(each for each in wheres if matches(_parse_where(each), properties))


def free_for(state: State, request: Request, better: Sequence[Wanting]) -> list[sqlite3.Row]:
    """Return the resources that could be claimed, see `LocalStore.free_resources`."""
    wants = map(_want, better)
    found = left_to(want_of(request), wants, _free(state, request.type), _could_use)
    return [each.row for each in islice(found, request.count + 1)]


def is_any_next(state: State, pool_type: str, waiting: Sequence[Wanting]) -> bool:
    """Return whether the next grant of a pool with a pace belongs to one of some tickets.

    Args:
        state: The opened state directory.
        pool_type: The pool of their queue.
        waiting: The tickets, the nearest first.
    """

    def could_use(ticket: Wanting, free: _Free) -> bool:
        return _could_use(_want(ticket), free)

    return next_granted(reversed(waiting), _free(state, pool_type), could_use) is not None


def is_enough_for(state: State, pool_type: str, ticket: Wanting) -> bool:
    """Return whether enough resources are free for a ticket that needs particular ones."""
    if ticket.name is not None:
        return bool(state.query(_IS_FREE, ticket.name, pool_type))
    own = _want(ticket)
    return sum(_could_use(own, each) for each in _free(state, pool_type)) >= ticket.count


def _free(state: State, pool_type: str) -> list[_Free]:
    found = state.query(_FREE, pool_type)
    return [_Free(row, parse_properties(row["properties"])) for row in found]


def _could_use(want: Want, free: _Free) -> bool:
    return want.could_use(free.row["name"], free.properties)


def _want(ticket: Wanting) -> Want:
    return Want(ticket.name, _parse_where(ticket.where))
