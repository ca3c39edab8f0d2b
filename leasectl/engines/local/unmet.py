"""Requests that a pool can't meet now.

Every function that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from leasectl.engines.local import member_rows
from leasectl.engines.rules.membership import Member
from leasectl.engines.rules.possible import Unmet, unmet
from leasectl.model import Request
from leasectl.state.rows import IS_FREE, parse_where

if TYPE_CHECKING:
    from leasectl.engines.local.queues import LocalQueues, Waiting
    from leasectl.state.directory import State


def why_unmet(state: State, request: Request, capacity: int) -> Unmet | None:
    """Return why the pool of a request can't meet it; None if it could.

    Args:
        state: The opened state directory.
        request: The request.
        capacity: How many resources there are.
    """
    if not request.where and request.name is not None:
        named = member_rows.member_of(member_rows.read(state, request.name))
        if named.pool == request.type and named.takes_holders:
            return None
    elif not request.where:
        if _has_open(state, request.type, request.count):
            return None
        if request.count <= capacity - member_rows.closed_in(state, request.type):
            return None
    return unmet(request, _members(state, request.type))


def _has_open(state: State, pool_type: str, count: int) -> bool:
    """Return whether so many are free and open to all, so that the open ones needn't be counted."""
    ((found,),) = state.query(
        f"SELECT count(*) FROM (SELECT 1 FROM resource WHERE type = ? AND {IS_FREE} "
        "ORDER BY fence, name LIMIT ?)",  # the order of the index of free resources
        pool_type,
        count,
    )
    return bool(found >= count)


def look_anew(queues: LocalQueues, pool_type: str) -> None:
    """Wake all waiters of a pool whose resources have changed: some can't be met now, or again.

    Those that can't be met are suspended at once, since their waiters may have stopped.
    """
    with closing(queues.in_order(pool_type)) as tickets:
        waiting = [each for each in tickets if not each.suspended]
    members = _members(queues.state, pool_type) if waiting else []
    open_names = {each.name for each in members if each.takes_holders}
    for each in waiting:
        if each.name is None and not each.where and each.count <= len(open_names):
            continue
        where = parse_where(each.where)
        if unmet(Request(pool_type, each.count, each.name, where=where), members) is not None:
            pass_by(queues, pool_type, each)
    queues.wake_all(pool_type)


def wake_suspended(queues: LocalQueues, pool_type: str) -> None:
    """Wake the suspended waiters: perhaps their requests can be met again."""
    rows = queues.state.query(
        "SELECT pipe FROM ticket JOIN suspended USING (type, number) WHERE type = ?",
        pool_type,
    )
    queues.wake([row["pipe"] for row in rows])


def pass_by(queues: LocalQueues, pool_type: str, ticket: Waiting) -> Waiting:
    """Suspend a ticket, until its waiter takes that back with a claim.

    Returns:
        The ticket, as it was.
    """
    if not ticket.suspended:
        queues.state.db.execute(
            "INSERT OR REPLACE INTO suspended (type, number) VALUES (?, ?)",
            (pool_type, ticket.number),
        )
        queues.wake_behind(pool_type, ticket)
    return ticket


def _members(state: State, pool_type: str) -> list[Member]:
    return [member_rows.member_of(row) for row in member_rows.read_pool(state, pool_type)]
