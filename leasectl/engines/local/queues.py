"""The queues of the embedded pools: tickets, and the pipes that wake whoever waits with one.

Whoever changes what a waiter waits for opens its pipe inside the transaction (`State.wake`).
Whether a waiter is dead is asked of its process, under the lock: a pipe without a reader proves
nothing either way. Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.contract import LostListener
from leasectl.model import Claimant, Request, Ticket, parse_process
from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.pipes import tidy
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead

# Often enough that what the killed leave stays bounded, seldom enough to cost nothing.
_TICKETS_PER_TIDYING = 64


class LocalQueues:
    """The queues of one state directory's pools.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of tickets of the dead.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self._state = state
        self._lost = lost
        self._clock = clock

    def is_waited_for(self, pool_type: str) -> bool:
        """Tell whether there is a ticket in a pool's queue."""
        return bool(self._state.query("SELECT 1 FROM ticket WHERE type = ? LIMIT 1", pool_type))

    def put(self, claimant: Claimant, number: int, pipe: str) -> None:
        """Put a ticket at the end of a queue.

        Args:
            claimant: Whose.
            number: One more than the pool's last.
            pipe: Its waiter's, in the folder of those.
        """
        request = claimant.request
        db = self._state.db
        db.execute("UPDATE pool SET last_ticket = ? WHERE type = ?", (number, request.type))
        db.execute(
            "INSERT INTO ticket (type, number, owner, holder_identity, count, since, process, pipe)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                request.type,
                number,
                claimant.claim_key,
                claimant.holder_identity,
                request.count,
                self._clock.wall(),
                claimant.process.encode() if claimant.process else None,
                pipe,
            ),
        )
        if number % _TICKETS_PER_TIDYING == 0:
            tidy(self._state)

    def last_two(self, request: Request, number: int) -> list[Ticket]:
        """The ticket of that number, or the one before where it is gone; and the one before that.

        What the claimants ask for isn't known: they show the given request.
        """
        rows = self._state.query(
            "SELECT number, owner, holder_identity, process FROM ticket "
            "WHERE type = ? AND number <= ? ORDER BY number DESC LIMIT 2",
            request.type,
            number,
        )
        return [
            Ticket(
                row["number"],
                Claimant(
                    row["owner"],
                    row["holder_identity"],
                    request,
                    None if row["process"] is None else parse_process(row["process"]),
                ),
            )
            for row in rows
        ]

    def tickets_of(self, claim_key: str) -> list[tuple[str, int, str]]:
        """The tickets that have a claim key: type, number and pipe."""
        rows = self._state.query("SELECT type, number, pipe FROM ticket WHERE owner = ?", claim_key)
        return [(row["type"], row["number"], row["pipe"]) for row in rows]

    def take_away(self, pool_type: str, number: int, claim_key: str | None = None) -> None:
        """Delete a ticket, of that claim key or of any, and wake the one behind it."""
        deleted = self._state.db.execute(
            "DELETE FROM ticket WHERE type = ? AND number = ? AND owner = coalesce(?, owner)",
            (pool_type, number, claim_key),
        )
        if deleted.rowcount:
            rows = self._state.query(
                "SELECT pipe FROM ticket WHERE type = ? AND number > ? ORDER BY number LIMIT 1",
                pool_type,
                number,
            )
            self.wake(row["pipe"] for row in rows)

    def remove_dead(self, pool_type: str, number: int) -> None:
        """Take away what a dead waiter left: its tickets, here and in other queues, its pipes."""
        ((claim_key,),) = self._state.query(
            "SELECT owner FROM ticket WHERE type = ? AND number = ?", pool_type, number
        )
        # All of them: without its record, which goes with them, nobody would ask for the others.
        for its_type, its_number, pipe in self.tickets_of(claim_key):
            self.take_away(its_type, its_number)
            unlink(self._state.waiter_pipe(pipe))
        self._lost(claim_key, ())

    def remove_dead_ones(self, pool_type: str) -> None:
        """Take away what all dead waiters of a pool left."""
        rows = self._state.query(
            "SELECT number, process FROM ticket WHERE type = ? AND process IS NOT NULL", pool_type
        )
        for row in rows:
            if is_dead(parse_process(row["process"])):
                self.remove_dead(pool_type, row["number"])

    def wake_head(self, pool_type: str) -> None:
        """Wake the waiter at the head of a pool's queue."""
        rows = self._state.query(
            "SELECT pipe FROM ticket WHERE type = ? ORDER BY number LIMIT 1", pool_type
        )
        self.wake(row["pipe"] for row in rows)

    def wake_all(self, pool_type: str) -> None:
        """Wake all waiters of a pool."""
        rows = self._state.query("SELECT pipe FROM ticket WHERE type = ?", pool_type)
        self.wake(row["pipe"] for row in rows)

    def wake(self, pipes: Iterable[str]) -> None:
        """Wake waiters by the names of their pipes."""
        for pipe in pipes:
            self._state.wake(self._state.waiter_pipe(pipe))
