"""What the record of events says of a ticket that got nothing."""

from __future__ import annotations

from leasectl.state.directory import State
from leasectl.system.clock import Clock


def note_given_up(state: State, pool_type: str, number: int, *, why: str, clock: Clock) -> None:
    """Inside a transaction: tell that a ticket, which is there still, is given up.

    Args:
        state: The opened state directory.
        pool_type: Of its queue.
        number: Its own.
        why: For people.
        clock: Where times come from.
    """
    wall = clock.wall()
    for row in state.query(
        "SELECT ticket.owner, ticket.holder_identity, ticket.count, acquisition, priority, "
        "handle.name, coalesce(? - nullif(queued_at, 0.0), max(0.0, ? - since)) AS wait "
        "FROM ticket LEFT JOIN handle ON id = ticket.owner "
        "WHERE ticket.type = ? AND number = ?",
        clock.elapsed(),
        wall,
        pool_type,
        number,
    ):
        state.events.add(
            wall,
            "gave up",
            pool_type,
            () if row["name"] is None else (row["name"],),
            handle=row["owner"],
            acquisition=row["acquisition"] or 0,
            holder=row["holder_identity"],
            count=row["count"],
            priority=row["priority"] or 0,
            ticket=number,
            wait=row["wait"],
            reason=why,
        )
