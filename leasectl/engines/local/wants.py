"""What could be had by requests that not any resource would do for: only they need this."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from leasectl.engines.local.member_rows import parse_properties
from leasectl.engines.matching import Want, matches, want_of
from leasectl.engines.membership import Properties
from leasectl.state import rows
from leasectl.typed.hints import TYPE_CHECKING, Protocol
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    import sqlite3

    from leasectl.model import Request
    from leasectl.state.directory import State

_parse_where = lru_cache(maxsize=64)(rows.parse_where)  # of tickets it is asked for again and again
_IS_FREE = "SELECT 1 FROM resource WHERE name = ? AND type = ? AND owner IS NULL"
_FREE = (
    "SELECT resource.name AS name, lease_transitions, holder_identity, properties FROM resource "
    "LEFT JOIN member ON member.name = resource.name "
    "WHERE type = ? AND owner IS NULL ORDER BY fence, resource.name"
)


class Wanting(Protocol):
    """What matters here of a ticket, as `LocalQueues` has them."""

    name: str | None
    where: str
    count: int


class _Free(NamedTuple):
    """A free resource, as `LocalStore.free_resources` returns them, and what it is."""

    row: sqlite3.Row
    properties: Properties

    def is_for(self, want: Want) -> bool:
        return want.could_use(self.row["name"], self.properties)


def matching(state: State, wheres: Sequence[str], name: str) -> frozenset[str]:
    """Those of what handles' records say has to be so of a resource that is so of one."""
    found = state.query("SELECT properties FROM member WHERE name = ?", name)
    properties = parse_properties(found[0]["properties"]) if found else ()
    return frozenset(each for each in wheres if matches(_parse_where(each), properties))


def free_for(state: State, request: Request, better: Sequence[Wanting]) -> list[sqlite3.Row]:
    """As `LocalStore.free_resources`, which see; one more than is asked for, if there are."""
    wants = [_want(each) for each in better]
    found = []
    for each in _free(state, request.type):
        if each.is_for(want_of(request)) and not any(map(each.is_for, wants)):
            found.append(each.row)
            if len(found) > request.count:
                break
    return found


def any_enough(state: State, pool_type: str, waiting: Sequence[Wanting]) -> bool:
    """Tell whether there is enough for one of some tickets, the nearest first, by their turns."""
    return any(
        is_enough_for(state, pool_type, each, waiting[place + 1 :])
        for place, each in enumerate(waiting)
    )


def is_enough_for(
    state: State, pool_type: str, ticket: Wanting, better: Sequence[Wanting] = ()
) -> bool:
    """Tell whether there is enough for a ticket that not any would do for.

    Args:
        state: The opened state directory.
        pool_type: The pool in whose queue it is.
        ticket: Which.
        better: Those for which something may be kept from it.
    """
    if ticket.name is not None:
        return bool(state.query(_IS_FREE, ticket.name, pool_type))
    own, wants = _want(ticket), [_want(each) for each in better]
    fits = [
        each
        for each in _free(state, pool_type)
        if each.is_for(own) and not any(map(each.is_for, wants))
    ]
    return len(fits) >= ticket.count


def _free(state: State, pool_type: str) -> list[_Free]:
    found = state.query(_FREE, pool_type)
    return [_Free(row, parse_properties(row["properties"])) for row in found]


def _want(ticket: Wanting) -> Want:
    return Want(ticket.name, _parse_where(ticket.where))
