"""Those in the queues who don't come: the suspended, whom others pass, and the dead.

Every function that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from leasectl.engines.event_words import WAITER_DIED
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.engines.local.unmet import pass_by
from leasectl.state.database import unlink


def suspend(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Let others pass a ticket, and have it look itself as soon as it can."""
    pass_by(queues, pool_type, ticket)
    queues.wake([ticket.pipe])


_WAITS_IN_ONE = "SELECT 1 FROM handle WHERE id = ? AND types IS NULL"
_IS_THERE = "SELECT 1 FROM ticket WHERE type = ? AND number = ? AND pipe = ?"


def remove_dead(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Take away what a dead waiter left: its ticket, those in other queues, its pipes.

    Args:
        queues: Of all pools.
        pool_type: Of the queue in which the ticket is.
        ticket: Which.
    """
    if queues.state.query(_WAITS_IN_ONE, ticket.claim_key):
        found = [(pool_type, ticket.number, ticket.pipe)]
    else:
        # All of them: without its record, which goes with them, nobody would ask for the others.
        # There is no index: of thousands who are dead each would have all the others looked at.
        found = queues.tickets_of(ticket.claim_key)
    for its_type, its_number, pipe in found:
        queues.take_away(its_type, its_number, why=WAITER_DIED)
        unlink(queues.state.waiter_pipe(pipe))
    if found:
        queues.lost(ticket.claim_key, ())


def dead_ones(queues: LocalQueues, pool_type: str) -> list[Waiting]:
    """The tickets of dead waiters in a queue; to be asked outside of a transaction as well."""
    with closing(queues.in_order(pool_type)) as tickets:
        return [each for each in tickets if each.is_dead]


def remove_dead_ones(queues: LocalQueues, pool_type: str, dead: Iterable[Waiting]) -> None:
    """Take away what some dead waiters left, but for what has gone since they were found."""
    for each in dead:
        if queues.state.query(_IS_THERE, pool_type, each.number, each.pipe):
            remove_dead(queues, pool_type, each)
