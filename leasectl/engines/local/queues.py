"""Enqueue, dequeue and give up."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener, TicketGone
from leasectl.engines.refusals import deleted_meanwhile
from leasectl.model import Claimant, Process, parse_process
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead

if TYPE_CHECKING:
    from leasectl.engines.local.order import LocalOrder, Rank


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
        "SELECT 1 FROM handle WHERE id = ? AND acquisition = ? AND state = 'acquiring' "
        "AND cancelled = 0",
        claimant.claim_key,
        claimant.acquisition,
    )
    return deleted_meanwhile(claimant.request.type) if rows else TicketGone()


_process = lru_cache(maxsize=64)(parse_process)  # of tickets it is asked for again and again

# The rank that a ticket has where not all are alike, and whether others may pass it.
PLACES = (
    "ticket LEFT JOIN suspended ON "
    "suspended.type = ticket.type AND suspended.number = ticket.number "
    "LEFT JOIN ranked_ticket AS ranked ON ranked.type = ticket.type "
    "AND ranked.number = ticket.number"
)
# What it asks for beside a number stands in the record of its handle; `handle.name` is the one
# resource that it waits for. Then the columns of a `Waiting`.
RANKED_TICKETS = f"{PLACES} LEFT JOIN handle ON handle.id = ticket.owner"
_WAITING = (
    "SELECT ticket.number, ticket.owner, ticket.count, ticket.process, ticket.pipe, handle.name, "
    "coalesce(where_properties, ''), suspended.number IS NOT NULL, ranked.priority, "
    "ranked.queued_at "
)
# Whole texts: what Python puts together anew, it looks up anew among those that SQLite knows.
_OF_POOL = f"{_WAITING} FROM {RANKED_TICKETS} WHERE ticket.type = ? "
_ONE = f"{_OF_POOL} AND ticket.number = ?"
_COUNTS = "suspended.number IS NULL"  # those that others pass may be thousands
_OR_OWN, _ORDER = f"({_COUNTS} OR ticket.number = ?)", "ORDER BY ticket.number"
_UP_TO = f"{_OF_POOL} AND ticket.number <= ? AND {_OR_OWN} {_ORDER} DESC"
_BEHIND = f"{_OF_POOL} AND ticket.number > ? AND {_COUNTS} {_ORDER}"
_NEAREST_TWO, _NEXT = f"{_UP_TO} LIMIT 2", f"{_BEHIND} LIMIT 1"
_FIRST = f"{_OF_POOL} AND {_COUNTS} {_ORDER} LIMIT 1"
_ASCENDING, _FIRST_TWO = f"{_OF_POOL} {_ORDER}", f"{_OF_POOL} {_ORDER} LIMIT 2"


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
        where: What has to be so of each, as the record of its handle has it; empty for nothing.
        suspended: Others may pass it.
        priority: As asked for; None where all in the queue are alike, so that numbers tell.
        queued_at: On the elapsed clock; 0 likewise.

    Attributes:
        is_ranked: More than numbers tells who is better in its queue.
    """

    __slots__ = (
        "claim_key",
        "count",
        "is_ranked",
        "name",
        "number",
        "pipe",
        "priority",
        "process",
        "queued_at",
        "suspended",
        "where",
    )

    def __init__(
        self,
        number: int,
        claim_key: str,
        count: int,
        process: str | None,
        pipe: str,
        name: str | None,
        where: str,
        suspended: int,
        priority: int | None = None,
        queued_at: float | None = None,
    ) -> None:
        self.number = number
        self.claim_key = claim_key
        self.count = count
        self.process = process
        self.pipe = pipe
        self.name = name
        self.where = where
        self.suspended = bool(suspended)
        self.priority = priority
        self.queued_at = queued_at or 0.0
        self.is_ranked = priority is not None

    @property
    def keeps_all_back(self) -> bool:
        """Tell whether nobody behind it may take anything."""
        return self.name is None and not self.where and not self.suspended

    @property
    def waiter(self) -> Process | None:
        """The process that waits with it; None where that isn't known."""
        return None if self.process is None else _process(self.process)

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

    Attributes:
        state: As given.
        lost: As given.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self.state = state
        self.lost = lost
        self._clock = clock

    def is_waited_for(self, pool_type: str) -> bool:
        """Tell whether there is a ticket in a pool's queue."""
        return bool(self.state.query("SELECT 1 FROM ticket WHERE type = ? LIMIT 1", pool_type))

    def order(self, pool_type: str) -> LocalOrder[Waiting]:
        """The order of a queue as it is now, where not all tickets are alike."""
        from leasectl.engines.local.order import LocalOrder  # which few queues need

        return LocalOrder(self.state, pool_type, now=self._clock.elapsed(), read=self._rows)

    def up_to(self, pool_type: str, number: int) -> list[Waiting]:
        """The ticket of that number, if it is there, and those before it, the nearest first.

        As far as the first that keeps all behind it from everything, and of one order none that
        others pass.
        """
        found = self._found(_NEAREST_TWO, pool_type, number, number)
        # Almost always that is all. Else it may be a long way.
        is_all = len(found) < 2 or found[1].keeps_all_back
        if not found or (is_all and not found[0].is_ranked):
            return found
        found = []
        with closing(self._read(_UP_TO, pool_type, number, number)) as tickets:
            for each in tickets:
                found.append(each)
                if each.is_ranked or (each.number < number and each.keeps_all_back):
                    break
        if found and found[0].is_ranked and found[0].number == number:
            for each in self.order(pool_type).before(found[0]):
                found.append(each)
                if each.keeps_all_back:
                    break
        return found

    def first_two(self, pool_type: str) -> list[Waiting]:
        """The tickets with the lowest numbers: the best and the next, unless one is ranked."""
        return self._found(_FIRST_TWO, pool_type)

    def could_use(self, ticket: Waiting, name: str) -> bool:
        """Tell whether a ticket would do with a resource."""
        if ticket.name not in (None, name):
            return False
        if not ticket.where:
            return True
        from leasectl.engines.local.wants import matching  # which few ask for

        return bool(matching(self.state, [ticket.where], name))

    def in_order(self, pool_type: str) -> Generator[Waiting, None, None]:
        """All tickets of a pool, the best first; nothing may change until that was closed."""
        with closing(self._read(_ASCENDING, pool_type)) as tickets:
            first = next(tickets, None)
            if first is None:
                return
            if not first.is_ranked:
                yield first
                yield from tickets
                return
        yield from self.order(pool_type).best_first()

    def behind(
        self, pool_type: str, ticket: Waiting, place: Rank | None = None
    ) -> Generator[Waiting, None, None]:
        """Those that a ticket is better than, the nearest first, as `in_order`; it may have another
        place in the order by now. In a queue of one order none that others pass."""
        if ticket.is_ranked:
            return self.order(pool_type).behind(ticket, place)
        return self._read(_BEHIND, pool_type, ticket.number)

    def tickets_of(self, claim_key: str) -> list[tuple[str, int, str]]:
        """The tickets that have a claim key: type, number and pipe."""
        rows = self.state.query("SELECT type, number, pipe FROM ticket WHERE owner = ?", claim_key)
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

        for each in self._found(_ONE, pool_type, number):
            if claim_key is None or each.claim_key == claim_key:
                note_given_up(self.state, pool_type, number, why=why, clock=self._clock)
                self.resume(pool_type, number)
                self.leave(pool_type, each)

    def leave(
        self,
        pool_type: str,
        ticket: Waiting,
        *,
        is_more_free: bool = True,
        behind: Sequence[Waiting] | None = None,
    ) -> None:
        """Delete a ticket that isn't suspended, and wake those whose turn that makes it.

        Args:
            pool_type: Of its queue.
            ticket: Which.
            is_more_free: Others may have something to claim at once.
            behind: The next by its number, or nobody; None where this transaction hasn't looked.
        """
        db, which = self.state.db, (pool_type, ticket.number)
        db.execute("DELETE FROM ticket WHERE type = ? AND number = ?", which)
        if ticket.is_ranked:
            db.execute("DELETE FROM ranked_ticket WHERE type = ? AND number = ?", which)
        self.wake_behind(pool_type, ticket, is_more_free=is_more_free, behind=behind)

    def resume(self, pool_type: str, number: int) -> None:
        """Have a ticket keep others back again, if it was suspended; it is where it always was."""
        self.state.db.execute(
            "DELETE FROM suspended WHERE type = ? AND number = ?", (pool_type, number)
        )

    # Waking

    def wake_for(self, pool_type: str, names: Iterable[str]) -> None:
        """Wake the best waiter for each of some resources that have become free."""
        left = set(names)
        called = _alone(self._found(_FIRST, pool_type)) if left else []
        if called is None:
            from leasectl.engines.local.wakes import best_for  # which few queues need

            called = best_for(self, pool_type, left)
        self.call(called)

    def wake_behind(
        self,
        pool_type: str,
        ticket: Waiting,
        *,
        place: Rank | None = None,
        is_more_free: bool = True,
        behind: Sequence[Waiting] | None = None,
    ) -> None:
        """Wake those whose turn it may be, or who watch another now, as a ticket has changed.

        That is the best for each want that it kept something from, and the first that takes any.

        Args:
            pool_type: Of its queue.
            ticket: Which.
            place: In the order, where that isn't its own any more.
            is_more_free: They may have something to claim at once.
            behind: As `leave` has it.
        """
        pipes = None
        if not ticket.is_ranked:
            next_one = self._found(_NEXT, pool_type, ticket.number) if behind is None else behind
            pipes = _alone(next_one)
        if pipes is None:
            from leasectl.engines.local.wakes import kept_back_by

            pipes = kept_back_by(self, pool_type, ticket, place)
        self.call(pipes) if is_more_free else self.wake(pipes)

    def wake_all(self, pool_type: str) -> None:
        """Wake all waiters of a pool."""
        rows = self.state.query("SELECT pipe FROM ticket WHERE type = ?", pool_type)
        self.call([row["pipe"] for row in rows])

    def wake(self, pipes: Iterable[str]) -> None:
        """Wake waiters by the names of their pipes."""
        for pipe in pipes:
            self.state.wake(self.state.waiter_pipe(pipe))

    def call(self, pipes: Sequence[str]) -> None:
        """Wake waiters that may have something to claim, and somebody to see that they come."""
        self.wake(pipes)
        if pipes:
            self.state.wake(self.state.witness_pipe)

    def _rows(self, sql: str, *values: object) -> list[Waiting]:
        """Tickets as some SQL finds them, from its ``FROM`` on."""
        return self._found(_WAITING + sql, *values)

    def _found(self, sql: str, *values: object) -> list[Waiting]:
        return [Waiting(*row) for row in self.state.query(sql, *values)]

    def _read(self, sql: str, *values: object) -> Generator[Waiting, None, None]:
        with closing(self.state.read(sql, *values)) as rows:
            for row in rows:
                yield Waiting(*row)


def _alone(first: Sequence[Waiting]) -> list[str] | None:
    """The pipe of the first of some tickets, if nobody behind it may take anything; None where that
    can't be said without a look at more."""
    if first and (first[0].is_ranked or not first[0].keeps_all_back):
        return None
    return [each.pipe for each in first]
