"""Requests that an embedded pool can't meet as it is: they wait on, and keep nobody from anything.

Every function that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from leasectl.engines.membership import Member
from leasectl.engines.possible import Unmet, unmet
from leasectl.model import Request

if TYPE_CHECKING:
    from leasectl.engines.local.queues import LocalQueues, Waiting
    from leasectl.state.directory import State


def why_unmet(state: State, request: Request) -> Unmet | None:
    """Why the pool of a request can't meet it, by a look at all that is in it; None if it could."""
    return unmet(request, _members(state, request.type))


def look_anew(queues: LocalQueues, pool_type: str) -> None:
    """Have all who wait look, as what is in a pool has changed: some can't be met now, or again.

    Those that can't are passed at once: their waiters may have stopped.
    """
    with closing(queues.in_order(pool_type)) as tickets:
        waiting = [each for each in tickets if not each.suspended]
    members = _members(queues.state, pool_type) if waiting else []
    open_names = {each.name for each in members if each.takes_holders}
    for each in waiting:
        if each.name is None and each.count <= len(open_names):
            continue
        if unmet(Request(pool_type, each.count, each.name), members) is not None:
            pass_by(queues, pool_type, each)
    queues.wake_all(pool_type)


def pass_by(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Have a ticket keep nobody from anything, until its waiter takes that back with a claim."""
    if ticket.suspended:
        return
    queues.state.db.execute(
        "INSERT OR REPLACE INTO suspended (type, number, owner) VALUES (?, ?, ?)",
        (pool_type, ticket.number, ticket.claim_key),
    )
    queues.wake_behind(pool_type, ticket)


def _members(state: State, pool_type: str) -> list[Member]:
    rows = state.query("SELECT name FROM resource WHERE type = ? ORDER BY name", pool_type)
    return [Member(row["name"], pool_type) for row in rows]
