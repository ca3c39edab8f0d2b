"""The queues of the embedded pools: tickets, and the pipes that wake whoever waits with one.

Whoever changes what a waiter waits for opens its pipe inside the transaction (`State.wake`), and
that of the witnesses if it may have something to claim now. Whether a waiter is dead is asked of
its process, under the lock: a pipe without a reader proves nothing either way. Every method that
changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing

from leasectl.engines.contract import LostListener
from leasectl.model import Claimant, Process, parse_process
from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.pipes import tidy
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead

# Often enough that what the killed leave stays bounded, seldom enough to cost nothing.
_TICKETS_PER_TIDYING = 64

# What a ticket asks for beside a number stands in the record of its handle; `handle.name` is the
# one resource that it waits for.
TICKETS = (
    "ticket LEFT JOIN handle ON handle.id = ticket.owner LEFT JOIN suspended ON "
    "suspended.type = ticket.type AND suspended.number = ticket.number "
    "AND suspended.owner = ticket.owner"
)
_WAITING = (
    "SELECT ticket.number, ticket.owner, ticket.count, process, pipe, handle.name, "
    f"suspended.number IS NOT NULL FROM {TICKETS} WHERE ticket.type = ? "
)


class Waiting:
    """A ticket in a queue, as it matters to others; nobody changes it.

    No named tuple: to make that class takes longer than all that most commands do with it.

    Args:
        number: The lower, the better.
        claim_key: Whose it is.
        count: How many resources it asks for.
        process: That waits with it, as a record has it; None where that isn't known.
        pipe: That wakes it, in the folder of those.
        name: The one resource that it could use; None for any.
        suspended: Others may pass it.
    """

    __slots__ = ("claim_key", "count", "name", "number", "pipe", "process", "suspended")

    def __init__(
        self,
        number: int,
        claim_key: str,
        count: int,
        process: str | None,
        pipe: str,
        name: str | None,
        suspended: int,
    ) -> None:
        self.number = number
        self.claim_key = claim_key
        self.count = count
        self.process = process
        self.pipe = pipe
        self.name = name
        self.suspended = bool(suspended)

    def could_use(self, name: str) -> bool:
        """Tell whether it would do with a resource."""
        return self.name is None or self.name == name

    @property
    def waiter(self) -> Process | None:
        """The process that waits with it; None where that isn't known."""
        return None if self.process is None else parse_process(self.process)

    @property
    def is_dead(self) -> bool:
        """Tell whether nobody waits with it any more."""
        return is_dead(self.waiter)


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
        db, now = self._state.db, self._clock.wall()
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
                now,
                claimant.process.encode() if claimant.process else None,
                pipe,
            ),
        )
        self._state.events.add(
            now,
            "queued",
            request.type,
            () if request.name is None else (request.name,),
            handle=claimant.claim_key,
            acquisition=claimant.acquisition,
            holder=claimant.holder_identity,
            count=request.count,
            priority=request.priority,
            ticket=number,
        )
        if number % _TICKETS_PER_TIDYING == 0:
            tidy(self._state)

    def up_to(self, pool_type: str, number: int) -> list[Waiting]:
        """The ticket of that number, if it is there, and those before it, the nearest first.

        As far as the first that keeps all behind it from everything.
        """
        found: list[Waiting] = []
        sql = "AND ticket.number <= ? ORDER BY ticket.number DESC"
        for each in self._read(sql, pool_type, number):
            found.append(each)
            if each.number < number and each.name is None and not each.suspended:
                break
        return found

    def in_order(self, pool_type: str) -> Generator[Waiting, None, None]:
        """All tickets of a pool, the best first; nothing may change until that was closed."""
        return self._read("ORDER BY ticket.number", pool_type)

    def tickets_of(self, claim_key: str) -> list[tuple[str, int, str]]:
        """The tickets that have a claim key: type, number and pipe."""
        rows = self._state.query("SELECT type, number, pipe FROM ticket WHERE owner = ?", claim_key)
        return [(row["type"], row["number"], row["pipe"]) for row in rows]

    def take_away(
        self, pool_type: str, number: int, claim_key: str | None = None, *, why: str
    ) -> None:
        """Delete a ticket, of that claim key or of any, and wake those whose turn that makes it.

        Args:
            pool_type: Of its queue.
            number: Its own.
            claim_key: Of whom alone; None for any.
            why: It is given up, for people.
        """
        from leasectl.engines.local.giving_up import note_given_up

        for each in list(self._read("AND ticket.number = ?", pool_type, number)):
            if claim_key is None or each.claim_key == claim_key:
                note_given_up(self._state, pool_type, number, why=why, clock=self._clock)
                self.resume(pool_type, number)
                self.leave(pool_type, number, each.name)

    def leave(
        self, pool_type: str, number: int, name: str | None, *, is_more_free: bool = True
    ) -> None:
        """Delete a ticket that isn't suspended, and wake those whose turn that makes it.

        Args:
            pool_type: Of its queue.
            number: Its own.
            name: The one resource that it could have used; None for any.
            is_more_free: Others may have something to claim at once.
        """
        db = self._state.db
        db.execute("DELETE FROM ticket WHERE type = ? AND number = ?", (pool_type, number))
        self.wake_behind(pool_type, number, name, is_more_free=is_more_free)

    # Those who don't come

    def suspend(self, pool_type: str, ticket: Waiting) -> None:
        """Let others pass a ticket, and have it look itself as soon as it can."""
        self._state.db.execute(
            "INSERT OR REPLACE INTO suspended (type, number, owner) VALUES (?, ?, ?)",
            (pool_type, ticket.number, ticket.claim_key),
        )
        self.wake_behind(pool_type, ticket.number, ticket.name)
        self.wake([ticket.pipe])

    def resume(self, pool_type: str, number: int) -> None:
        """Have a ticket keep others back again, if it was suspended; it is where it always was."""
        self._state.db.execute(
            "DELETE FROM suspended WHERE type = ? AND number = ?", (pool_type, number)
        )

    def remove_dead(self, ticket: Waiting) -> None:
        """Take away what a dead waiter left: its tickets, here and in other queues, its pipes."""
        from leasectl.engines.event_words import WAITER_DIED

        # All of them: without its record, which goes with them, nobody would ask for the others.
        found = self.tickets_of(ticket.claim_key)
        for its_type, its_number, pipe in found:
            self.take_away(its_type, its_number, why=WAITER_DIED)
            unlink(self._state.waiter_pipe(pipe))
        if found:
            self._lost(ticket.claim_key, ())

    def remove_dead_ones(self, pool_type: str) -> None:
        """Take away what all dead waiters of a pool left."""
        with closing(self.in_order(pool_type)) as tickets:
            dead = [each for each in tickets if each.is_dead]
        for each in dead:
            self.remove_dead(each)

    # Waking

    def wake_for(self, pool_type: str, names: Iterable[str]) -> None:
        """Wake the best waiter for each of some resources that have become free."""
        left = set(names)
        called = []
        with closing(self.in_order(pool_type)) as tickets:
            for each in tickets:
                if each.suspended or not any(map(each.could_use, left)):
                    continue
                called.append(each.pipe)
                left = {name for name in left if not each.could_use(name)}
                if not left:
                    break
        self._call(called)

    def wake_behind(
        self, pool_type: str, number: int, name: str | None, *, is_more_free: bool = True
    ) -> None:
        """Wake those whose turn it may be, or who watch another now, as a ticket has changed.

        That is the best for each name that it kept something from, and the first that takes any.

        Args:
            pool_type: Of its queue.
            number: Its own.
            name: The one resource that it could have used; None for any.
            is_more_free: They may have something to claim at once.
        """
        called: dict[str | None, str] = {}
        sql = "AND ticket.number > ? ORDER BY ticket.number"
        with closing(self._read(sql, pool_type, number)) as tickets:
            for each in tickets:
                if each.suspended:
                    continue
                if each.name is None or name is None or name == each.name:
                    called.setdefault(each.name, each.pipe)
                if each.name is None:
                    break
        pipes = list(called.values())
        self._call(pipes) if is_more_free else self.wake(pipes)

    def wake_all(self, pool_type: str) -> None:
        """Wake all waiters of a pool."""
        rows = self._state.query("SELECT pipe FROM ticket WHERE type = ?", pool_type)
        self._call([row["pipe"] for row in rows])

    def wake(self, pipes: Iterable[str]) -> None:
        """Wake waiters by the names of their pipes."""
        for pipe in pipes:
            self._state.wake(self._state.waiter_pipe(pipe))

    def _call(self, pipes: Sequence[str]) -> None:
        """Wake waiters that may have something to claim, and somebody to see that they come."""
        self.wake(pipes)
        if pipes:
            self._state.wake(self._state.witness_pipe)

    def _read(self, sql: str, *values: object) -> Generator[Waiting, None, None]:
        cursor = self._state.db.execute(_WAITING + sql, values)
        try:
            for row in cursor:
                yield Waiting(*row)
        finally:
            cursor.close()
