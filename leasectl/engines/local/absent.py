"""Those in the queues who don't come: the suspended, whom others pass, and the dead.

Every function that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from leasectl.engines.event_words import WAITER_DIED
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.engines.local.unmet import pass_by
from leasectl.engines.local.wakes import kept_back_by
from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.pipes import tidy
from leasectl.system.process import DeadProcesses


def suspend(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Let others pass a ticket, and have it look itself as soon as it can."""
    pass_by(queues, pool_type, ticket)
    queues.wake([ticket.pipe])


# From the nearest on.
_BEFORE = (
    "SELECT number, process FROM ticket LEFT JOIN suspended "
    "USING (type, number, owner) WHERE type = ? AND number < ? AND suspended.owner IS NULL "
    "ORDER BY number DESC"
)
_PASS = (
    "INSERT OR REPLACE INTO suspended (type, number, owner) "
    "SELECT type, number, owner FROM ticket WHERE type = ? AND number >= ? AND number < ?"
)
_PASSED = (
    "SELECT type, number, process FROM suspended JOIN ticket USING (type, number, owner) "
    "ORDER BY type, number DESC"
)
# Whoever holds the lock for them keeps all others waiting.
REMOVED_AT_ONCE = 128
_REMOVED_SINGLY = 16
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


def get_past(queues: LocalQueues, pool_type: str, dead: Waiting, number: int, *, nth: int) -> None:
    """Have a dead waiter keep nobody from anything: it is taken away, or others pass it.

    Once some were found, all others are passed at once that are dead before a ticket, up to the
    first that lives. To take away what each has left takes as long as a grant, and there may be
    thousands: that is for `remove_passed`, in parts.

    Args:
        queues: Of all pools.
        pool_type: Of the queue.
        dead: Its ticket.
        number: Of the ticket that is behind it.
        nth: How many of them were found in this transaction, this one included.
    """
    if nth == _REMOVED_SINGLY and not dead.is_ranked:
        _pass_dead(queues, pool_type, number)
    else:
        remove_dead(queues, pool_type, dead)


def _pass_dead(queues: LocalQueues, pool_type: str, number: int) -> None:
    state, are_dead, first_dead = queues.state, DeadProcesses(), None
    for each, process in state.query(_BEFORE, pool_type, number):
        if process is None or process not in are_dead:
            break
        first_dead = each
    if first_dead is None:
        return
    (first,) = queues.up_to(pool_type, first_dead)[:1]
    state.db.execute(_PASS, (pool_type, first_dead, number))
    # Whoever watched one of them, or was to be woken by one.
    queues.call(kept_back_by(queues, pool_type, first, None))


def dead_passed(state: State) -> list[tuple[str, int]]:
    """Some of the tickets of dead waiters whom others pass, by their types and numbers.

    As many as are to be taken away at once; to be asked outside of a transaction as well.
    """
    are_dead, dead = DeadProcesses(), []
    for pool_type, number, process in state.query(_PASSED):
        if process is not None and process in are_dead:
            dead.append((pool_type, number))
            if len(dead) == REMOVED_AT_ONCE:
                break
    return dead


def remove_passed(queues: LocalQueues, dead: Iterable[tuple[str, int]]) -> None:
    """Take away what the waiters of some tickets left, which `dead_passed` has found."""
    for pool_type, number in dead:
        for each in queues.up_to(pool_type, number)[:1]:
            # Else it went with another of its claim key.
            if each.number == number and each.suspended and each.is_dead:
                remove_dead(queues, pool_type, each)


def tidy_up(queues: LocalQueues) -> None:
    """Take away some of what those who were killed have left."""
    remove_passed(queues, dead_passed(queues.state))
    tidy(queues.state)


def dead_ones(queues: LocalQueues, pool_type: str) -> list[Waiting]:
    """The tickets of dead waiters in a queue; to be asked outside of a transaction as well."""
    with closing(queues.in_order(pool_type)) as tickets:
        waiting = list(tickets)  # before it is looked which processes there are
    are_dead = DeadProcesses()
    return [each for each in waiting if each.process is not None and each.process in are_dead]


def remove_dead_ones(queues: LocalQueues, pool_type: str, dead: Iterable[Waiting]) -> None:
    """Take away what some dead waiters left, but for what has gone since they were found."""
    for each in dead:
        if queues.state.query(_IS_THERE, pool_type, each.number, each.pipe):
            remove_dead(queues, pool_type, each)
