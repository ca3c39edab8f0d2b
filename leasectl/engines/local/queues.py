"""The tickets of a queue in order: read them, remove them, wake their waiters."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from leasectl.engines.contract import LostListener, TicketGone
from leasectl.engines.refusals import deleted_meanwhile
from leasectl.model import Claimant, Process, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import encode_process
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead
from leasectl.text.naming import build_url_in

if TYPE_CHECKING:
    from leasectl.engines.local.order import LocalOrder
    from leasectl.engines.rules.turns import Rank


def why_gone(state: State, claimant: Claimant) -> Exception:
    """Return why a waiter's ticket is gone, although its pool still exists.

    A process that withdraws a ticket marks its record in the same transaction. With the pool, the
    ticket is deleted without that.
    """
    rows = state.query(
        "SELECT 1 FROM handle WHERE id = ? AND acquisition = ? AND state = 'acquiring' "
        "AND cancelled = 0",
        claimant.claim_key,
        claimant.acquisition,
    )
    return deleted_meanwhile(claimant.request.type) if rows else TicketGone()


_process = lru_cache(maxsize=64)(parse_process)  # the same tickets are read again and again

# The rank of a ticket if there are several priorities, and whether others may pass it.
PLACES = (
    "ticket LEFT JOIN suspended ON "
    "suspended.type = ticket.type AND suspended.number = ticket.number "
    "LEFT JOIN ranked_ticket AS ranked ON ranked.type = ticket.type "
    "AND ranked.number = ticket.number"
)
# The rest of its request is in the record of its handle; `handle.name` is the one resource that
# it waits for. Then the columns of a `Waiting`.
RANKED_TICKETS = f"{PLACES} LEFT JOIN handle ON handle.id = ticket.owner"
_WAITING = (
    "SELECT ticket.number, ticket.owner, ticket.count, ticket.process, ticket.pipe, handle.name, "
    "coalesce(where_properties, ''), suspended.number IS NOT NULL, ranked.priority, "
    "ranked.queued_at "
)
# Constant texts: Python finds the prepared statement of the same text object faster.
_OF_POOL = f"{_WAITING} FROM {RANKED_TICKETS} WHERE ticket.type = ? "
_ONE = f"{_OF_POOL} AND ticket.number = ?"
_COUNTS = "suspended.number IS NULL"  # there may be thousands of suspended ones
_OR_OWN, _ORDER = f"({_COUNTS} OR ticket.number = ?)", "ORDER BY ticket.number"
_UP_TO = f"{_OF_POOL} AND ticket.number <= ? AND {_OR_OWN} {_ORDER} DESC"
_BEHIND = f"{_OF_POOL} AND ticket.number > ? AND {_COUNTS} {_ORDER}"
_NEAREST_TWO, _NEXT = f"{_UP_TO} LIMIT 2", f"{_BEHIND} LIMIT 1"
_FIRST = f"{_OF_POOL} AND {_COUNTS} {_ORDER} LIMIT 1"
_ASCENDING, _FIRST_TWO = f"{_OF_POOL} {_ORDER}", f"{_OF_POOL} {_ORDER} LIMIT 2"
_GIVEN_UP = (
    "SELECT ticket.owner, ticket.holder_identity, ticket.count, acquisition, priority, "
    "handle.name, coalesce(? - nullif(queued_at, 0.0), max(0.0, ? - since)) AS wait "
    "FROM ticket LEFT JOIN handle ON id = ticket.owner WHERE ticket.type = ? AND number = ?"
)
_HAS_PACE = "SELECT 1 FROM pool_setting WHERE type = ? AND pace_seconds > 0"
# Often enough to bound what killed processes leave, seldom enough to cost nothing.
_TICKETS_PER_TIDYING = 64


class Waiting:
    """A ticket in a queue, as others see it; read-only.

    No named tuple: to create that class takes longer than most commands' work with it.

    Args:
        number: The lower, the better.
        claim_key: Of the request.
        count: How many resources it asks for.
        process: The waiter, as a record has it; None if it isn't known.
        pipe: The named pipe that wakes it, in the folder of those.
        name: The one resource that it could use; None for any.
        where: The required properties, as the record of its handle has them; empty for none.
        suspended: Others may pass it.
        priority: As asked for; None if all in the queue have the same, so that numbers decide.
        queued_at: On the elapsed clock; 0 if all have the same priority.

    Attributes:
        is_ranked: Priorities decide who is better in its queue, not only numbers.
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
        """Return whether no ticket behind it may take anything."""
        return self.name is None and not self.where and not self.suspended

    @property
    def waiter(self) -> Process | None:
        """Return the waiting process; None if it isn't known."""
        return None if self.process is None else _process(self.process)

    @property
    def is_dead(self) -> bool:
        """Return whether its waiter is dead."""
        return is_dead(self.waiter)


class LocalQueues:
    """The queues of one state directory's pools.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Called, inside the transaction, with the tickets of dead waiters.

    Attributes:
        state, lost, clock: As given.
    """

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self.state = state
        self.lost = lost
        self.clock = clock

    def is_waited_for(self, pool_type: str) -> bool:
        """Return whether there is a ticket in a pool's queue."""
        return bool(self.state.query("SELECT 1 FROM ticket WHERE type = ? LIMIT 1", pool_type))

    def order(self, pool_type: str) -> LocalOrder:
        """Return the order of a queue as it is now, if not all tickets have the same priority."""
        from leasectl.engines.local.order import LocalOrder  # few queues need it

        return LocalOrder(self.state, pool_type, now=self.clock.elapsed(), read=self._rows)

    def up_to(self, pool_type: str, number: int) -> list[Waiting]:
        """Return the ticket of a number, if it exists, and those before it, the nearest first.

        They end with the first that keeps everything from all behind it. Suspended tickets are left
        out of a queue in which all have the same priority.
        """
        found = self._found(_NEAREST_TWO, pool_type, number, number)
        # Two are nearly always enough. Otherwise it may be a long way.
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
        """Return the tickets with the two lowest numbers: the best ones, unless one is ranked."""
        return self._found(_FIRST_TWO, pool_type)

    def could_use(self, ticket: Waiting, name: str) -> bool:
        """Return whether a ticket could use a resource."""
        if ticket.name not in (None, name):
            return False
        if not ticket.where:
            return True
        from leasectl.engines.local.wants import matching  # few requests need it

        return bool(matching(self.state, [ticket.where], name))

    def in_order(self, pool_type: str) -> Generator[Waiting, None, None]:
        """Yield all tickets of a pool, the best first; nothing may change until that was closed."""
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
        """Yield the tickets behind a ticket, or behind an earlier rank of it, the nearest first.

        See `in_order`. Suspended tickets are left out of a queue in which all have the same
        priority.
        """
        if ticket.is_ranked:
            return self.order(pool_type).behind(ticket, place)
        return self._read(_BEHIND, pool_type, ticket.number)

    def tickets_of(self, claim_key: str) -> list[tuple[str, int, str]]:
        """Return the tickets of a claim key: type, number and pipe."""
        rows = self.state.query("SELECT type, number, pipe FROM ticket WHERE owner = ?", claim_key)
        return [(row["type"], row["number"], row["pipe"]) for row in rows]

    def put(self, claimant: Claimant, number: int, pipe: str, *, is_ranked: bool = False) -> None:
        """Put a ticket at the end of a queue, or before those that it is better than.

        Args:
            claimant: The claimant.
            number: The ticket's number, one more than the pool's last.
            pipe: Its waiter's named pipe, in the folder of those.
            is_ranked: The tickets of that queue have different priorities.
        """
        request, state, now = claimant.request, self.state, self.clock.wall()
        state.db.execute("UPDATE pool SET last_ticket = ? WHERE type = ?", (number, request.type))
        state.db.execute(
            "INSERT INTO ticket (type, number, owner, holder_identity, count, since, process, pipe)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                request.type,
                number,
                claimant.claim_key,
                claimant.holder_identity,
                request.count,
                now,
                encode_process(claimant.process),
                pipe,
            ),
        )
        state.events.add(
            now,
            "queued",
            request.type,
            () if request.name is None else (request.name,),
            handle=claimant.claim_key,
            acquisition=claimant.acquisition,
            holder_identity=claimant.holder_identity,
            count=request.count,
            priority=request.priority,
            ticket=number,
            build_url=build_url_in(request.labels),
        )
        if is_ranked:
            self.order(request.type).add(number, request.priority)
        if number % _TICKETS_PER_TIDYING == 0:
            from leasectl.engines.local.absent import tidy_up

            tidy_up(self)

    def note_given_up(self, pool_type: str, number: int, why: str) -> None:
        """Write the event of a ticket that is given up, before it is deleted."""
        wall = self.clock.wall()
        for row in self.state.query(_GIVEN_UP, self.clock.elapsed(), wall, pool_type, number):
            self.state.events.add(
                wall,
                "gave up",
                pool_type,
                () if row["name"] is None else (row["name"],),
                handle=row["owner"],
                acquisition=row["acquisition"] or 0,
                holder_identity=row["holder_identity"],
                count=row["count"],
                priority=row["priority"] or 0,
                ticket=number,
                wait_seconds=row["wait"],
                reason=why,
            )

    def take_away(
        self, pool_type: str, number: int, claim_key: str | None = None, *, why: str
    ) -> None:
        """Delete a ticket, and wake those whose turn it may be now.

        Args:
            pool_type: Of its queue.
            number: Of the ticket.
            claim_key: Delete it only if it has this claim key; None for any.
            why: It is given up, for people.
        """
        for each in self._found(_ONE, pool_type, number):
            if claim_key is None or each.claim_key == claim_key:
                self.note_given_up(pool_type, number, why)
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
        """Delete a ticket that isn't suspended, and wake those whose turn it may be now.

        Args:
            pool_type: Of its queue.
            ticket: The ticket.
            is_more_free: Others may have something to claim at once.
            behind: The next ticket by its number, if any; None if this transaction hasn't looked.
        """
        db, which = self.state.db, (pool_type, ticket.number)
        db.execute("DELETE FROM ticket WHERE type = ? AND number = ?", which)
        if ticket.is_ranked:
            db.execute("DELETE FROM ranked_ticket WHERE type = ? AND number = ?", which)
        self.wake_behind(pool_type, ticket, is_more_free=is_more_free, behind=behind)

    def suspend(self, pool_type: str, ticket: Waiting) -> None:
        """Let others pass a ticket, until its waiter takes that back with a claim."""
        if not ticket.suspended:
            self.state.db.execute(
                "INSERT OR REPLACE INTO suspended (type, number) VALUES (?, ?)",
                (pool_type, ticket.number),
            )
            self.wake_behind(pool_type, ticket)

    def resume(self, pool_type: str, number: int) -> None:
        """End the suspension of a ticket, which has kept its queue position."""
        self.state.db.execute(
            "DELETE FROM suspended WHERE type = ? AND number = ?", (pool_type, number)
        )

    # Waking

    def wake_for(self, pool_type: str, names: Iterable[str]) -> None:
        """Wake the best waiter for each of some resources that have become free."""
        left = set(names)
        called = _alone(self._found(_FIRST, pool_type)) if left else []
        if called is None:
            from leasectl.engines.rules.turns import shares  # few queues need it

            with closing(self.in_order(pool_type)) as tickets:
                counting = (each for each in tickets if not each.suspended)
                called = [
                    each.pipe for each, share in shares(counting, left, self.could_use) if share
                ]
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
        """Wake those whose turn it may be, or who watch another now, after a ticket has changed.

        That is the best for each want that it kept something from, and the first that takes any.

        Args:
            pool_type: Of its queue.
            ticket: The ticket.
            place: An earlier rank of it; None for the present one.
            is_more_free: They may have something to claim at once.
            behind: See `leave`.
        """
        pipes = None
        if not ticket.is_ranked:
            next_one = self._found(_NEXT, pool_type, ticket.number) if behind is None else behind
            pipes = _alone(next_one)
        if pipes is None:
            pipes = self.kept_back_by(pool_type, ticket, place)
        self.call(pipes) if is_more_free else self.wake(pipes)

    def kept_back_by(self, pool_type: str, ticket: Waiting, place: Rank | None = None) -> list[str]:
        """Return the pipes of the best for each want that a ticket kept something from.

        They end with the first ticket that takes any resource.

        Args:
            pool_type: The pool of the queue.
            ticket: The ticket.
            place: See `wake_behind`.
        """
        called: dict[tuple[str | None, str], str] = {}
        name = ticket.name
        if name is not None and self.state.query(_HAS_PACE, pool_type):
            name = None  # it also used the pace's next grant
        with closing(self.behind(pool_type, ticket, place)) as tickets:
            for each in tickets:
                if each.suspended:
                    continue
                if name is None or self.could_use(each, name):
                    called.setdefault((each.name, each.where), each.pipe)
                if each.keeps_all_back:
                    break
        return list(called.values())

    def wake_all(self, pool_type: str) -> None:
        """Wake all waiters of a pool."""
        rows = self.state.query("SELECT pipe FROM ticket WHERE type = ?", pool_type)
        self.call([row["pipe"] for row in rows])

    def wake_suspended(self, pool_type: str) -> None:
        """Wake the suspended waiters of a pool: perhaps their requests can be met again."""
        sql = "SELECT pipe FROM ticket JOIN suspended USING (type, number) WHERE type = ?"
        self.wake([row["pipe"] for row in self.state.query(sql, pool_type)])

    def wake(self, pipes: Iterable[str]) -> None:
        """Wake waiters by the names of their pipes."""
        for pipe in pipes:
            self.state.wake(self.state.waiter_pipe(pipe))

    def call(self, pipes: Sequence[str]) -> None:
        """Wake waiters that may have something to claim, and the witness, which checks that."""
        self.wake(pipes)
        if pipes:
            self.state.wake(self.state.witness_pipe)

    def _rows(self, sql: str, *values: object) -> list[Waiting]:
        """Return the tickets of a query that begins with ``FROM``."""
        return self._found(_WAITING + sql, *values)

    def _found(self, sql: str, *values: object) -> list[Waiting]:
        return [Waiting(*row) for row in self.state.query(sql, *values)]

    def _read(self, sql: str, *values: object) -> Generator[Waiting, None, None]:
        with closing(self.state.read(sql, *values)) as rows:
            for row in rows:
                yield Waiting(*row)


def _alone(first: Sequence[Waiting]) -> list[str] | None:
    """Return the pipe of the first ticket if none behind it may take anything; None if unknown."""
    if first and (first[0].is_ranked or not first[0].keeps_all_back):
        return None
    return [each.pipe for each in first]
