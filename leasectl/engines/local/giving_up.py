"""Of a ticket that got nothing: what the record of events says of it, and why it isn't there."""

from __future__ import annotations

from leasectl.engines.contract import TicketGone
from leasectl.engines.refusals import deleted_meanwhile
from leasectl.model import Claimant
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


def why_gone(state: State, claimant: Claimant) -> Exception:
    """Tell why a waiter's ticket isn't there any more, though its pool is.

    Whoever withdraws one has its record say so in the same transaction; with its pool it just goes.
    """
    rows = state.query(
        "SELECT 1 FROM handle WHERE id = ? AND acquisition = ? AND state = 'acquiring'",
        claimant.claim_key,
        claimant.acquisition,
    )
    return deleted_meanwhile(claimant.request.type) if rows else TicketGone()
