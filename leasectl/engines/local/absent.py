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


def remove_dead(queues: LocalQueues, ticket: Waiting) -> None:
    """Take away what a dead waiter left: its tickets, here and in other queues, its pipes."""
    # All of them: without its record, which goes with them, nobody would ask for the others.
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
        if (pool_type, each.number, each.pipe) in queues.tickets_of(each.claim_key):
            remove_dead(queues, each)
