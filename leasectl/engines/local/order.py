"""The order of a queue with priorities or aging.

If all tickets have the same priority, their numbers are their order, and nothing here is needed.
From the first other priority on, each ticket of the queue has a row in ``ranked_ticket``. Within a
priority, the earlier ticket is always the better. So one index look-up for each priority finds the
first ticket, or a ticket's neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING

from leasectl.engines.rules.turns import Rank, effective_priority, next_rise

if TYPE_CHECKING:
    from leasectl.engines.local.queues import Waiting
    from leasectl.state.directory import State

_PRIORITIES = (
    "WITH RECURSIVE found (priority) AS ("
    "SELECT max(priority) FROM ranked_ticket WHERE type = :type UNION ALL "
    "SELECT (SELECT max(priority) FROM ranked_ticket WHERE type = :type "
    "AND priority < found.priority) FROM found WHERE found.priority IS NOT NULL) "
    "SELECT priority FROM found WHERE priority IS NOT NULL"
)
_BESIDE = (
    "LEFT JOIN handle ON handle.id = ticket.owner LEFT JOIN suspended ON "
    "suspended.type = ticket.type AND suspended.number = ticket.number"
)
_SAME = "ranked.type = ticket.type AND ranked.number = ticket.number"
# With this order of tables, SQLite reads the index of ranks.
_RANKED_TICKETS = f"ranked_ticket AS ranked CROSS JOIN ticket ON {_SAME} {_BESIDE}"
# With a hundred priorities, most are read for one ticket only.
_FIRST_ROWS, _MORE_ROWS = 2, 8
_BEFORE_ALL, _BEHIND_ALL = float("-inf"), float("inf")
_LARGEST = 2**62  # number of a ticket
# Rounding of clocks and their sums, in seconds; tickets within it are compared exactly.
_ROUNDING_SECONDS = 0.001


class LocalOrder:
    """The order of one pool's queue at one instant.

    Args:
        state: Where it is kept.
        pool_type: Of the pool.
        now: On the elapsed clock.
        read: Returns the tickets of a query that begins with ``FROM``, with its values.
    """

    def __init__(
        self, state: State, pool_type: str, *, now: float, read: Callable[..., list[Waiting]]
    ) -> None:
        self._state = state
        self._type = pool_type
        self._now = now
        self._read = read
        rows = state.query("SELECT aging_seconds FROM pool_setting WHERE type = ?", pool_type)
        self._aging: float = rows[0]["aging_seconds"] if rows else 0.0

    # Rows

    def add(self, number: int, priority: int) -> None:
        """Add a new ticket to the order, and first all tickets that aren't in it yet.

        Args:
            number: Of the ticket.
            priority: As asked for.
        """
        self.complete()
        self._insert(number, priority, self._now)

    def complete(self) -> None:
        """Add the tickets from the time when all had the same priority."""
        rows = self._state.query(
            "SELECT number, priority, queued_at "
            "FROM ticket LEFT JOIN handle ON handle.id = ticket.owner "
            "WHERE ticket.type = ? AND number > ? ORDER BY number DESC",
            self._type,
            self._last(),
        )
        latest = self._now
        for row in rows:
            if row["queued_at"] is not None:  # a reboot starts its time again
                latest = min(latest, row["queued_at"])
            self._insert(row["number"], row["priority"] or 0, latest)

    def _insert(self, number: int, priority: int, queued_at: float) -> None:
        self._state.db.execute(
            "INSERT OR REPLACE INTO ranked_ticket (type, number, priority, queued_at) "
            "VALUES (?, ?, ?, ?)",
            (self._type, number, priority, queued_at),
        )

    def _last(self) -> int:
        """Return the number of the last ticket that has a row; 0 for none."""
        sql = "SELECT coalesce(max(number), 0) FROM ranked_ticket WHERE type = ?"
        ((number,),) = self._state.query(sql, self._type)
        return int(number)

    # Places

    def rank(self, ticket: Waiting, then: float | None = None) -> Rank:
        """Return the rank of a ticket, now or at another time."""
        if ticket.priority is None:
            return Rank(0, ticket.number)
        waited = (self._now if then is None else then) - ticket.queued_at
        return Rank(-effective_priority(ticket.priority, waited, self._aging), ticket.number)

    def best_first(self) -> Iterator[Waiting]:
        """Yield all tickets, the best first."""
        ascending = (self._ascending(each, _BEFORE_ALL) for each in self._priorities())
        return self._merged(ascending)

    def behind(self, ticket: Waiting, place: Rank | None = None) -> Generator[Waiting, None, None]:
        """Yield the tickets behind a ticket, the nearest first.

        Args:
            ticket: The ticket.
            place: An earlier rank of it; None for the present one.
        """
        where = place or self.rank(ticket)
        ascending = (
            self._ascending(each, self._divide(ticket, where, each) - _ROUNDING_SECONDS, where)
            for each in self._priorities()
            if self._aging or each <= -where.below
        )
        yield from self._merged(ascending)

    def before(self, ticket: Waiting) -> Iterator[Waiting]:
        """Yield the tickets before a ticket, the nearest first."""
        where = self.rank(ticket)
        descending = (
            self._descending(each, self._divide(ticket, where, each) + _ROUNDING_SECONDS, where)
            for each in reversed(self._priorities())
            if self._aging or each >= -where.below
        )
        return self._merged(descending, reverse=True)

    def _merged(
        self, lines: Iterator[Iterator[Waiting]], *, reverse: bool = False
    ) -> Iterator[Waiting]:
        """Yield the tickets of several priorities in one order.

        Without aging the priorities follow each other, so a line is read only when it is reached.
        """
        if not self._aging:
            return chain.from_iterable(lines)
        return merge(*lines, key=self.rank, reverse=reverse)

    def has_passed(self, ticket: Waiting, place: Rank) -> bool:
        """Return whether a ticket has passed another since it had an earlier rank.

        Within a priority none passes another, however long they wait.
        """
        where = self.rank(ticket)
        if where == place:
            return False
        behind = (
            self._ascending(each, self._divide(ticket, where, each) - _ROUNDING_SECONDS, where)
            for each in self._priorities()
            if each != ticket.priority
        )
        return any(self.rank(each) < place for line in behind for each in islice(line, 1))

    def overtakes_at(self, ticket: Waiting, other: Waiting) -> float | None:
        """Return when a ticket will pass one that is better now; None for never.

        That can only be when its own priority rises next: if it doesn't pass then, it never does,
        since both rise by the same from there on.
        """
        left = next_rise(self._now - ticket.queued_at, self._aging)
        if left is None:
            return None
        then = self._now + max(left, _ROUNDING_SECONDS)  # never at once again
        own = Rank(self.rank(ticket).below - 1, ticket.number)
        return then if own < self.rank(other, then) else None

    def _divide(self, ticket: Waiting, place: Rank, priority: int) -> float:
        """Return until when tickets of a priority have to be queued to be better than a rank.

        Args:
            ticket: The ticket with that rank.
            place: The rank.
            priority: Of the others.
        """
        above = -place.below - priority  # how much they have to age to be equal
        if not self._aging:
            if above == 0:
                return ticket.queued_at
            return _BEFORE_ALL if above > 0 else _BEHIND_ALL
        equal_until = self._now - above * self._aging  # tickets queued by then are equal or better
        return min(equal_until, max(ticket.queued_at, equal_until - self._aging))

    def _priorities(self) -> list[int]:
        return [row["priority"] for row in self._state.query(_PRIORITIES, type=self._type)]

    def _ascending(
        self, priority: int, since: float, place: Rank | None = None
    ) -> Iterator[Waiting]:
        """Yield the tickets of one priority queued since a time, behind a rank."""

        def passed(found: Waiting) -> int | None:
            if place is None or self.rank(found) > place:
                return None
            return place.number if self.rank(found).below == place.below else _LARGEST

        return self._of(priority, ">", "", (since, -1), passed)

    def _descending(self, priority: int, until: float, place: Rank) -> Iterator[Waiting]:
        """Yield the tickets of one priority queued until a time, before a rank, latest first."""

        def passed(found: Waiting) -> int | None:
            if self.rank(found) < place:
                return None
            return place.number if self.rank(found).below == place.below else -1

        return self._of(priority, "<", "DESC", (until, _LARGEST), passed)

    def _of(
        self,
        priority: int,
        beyond: str,
        direction: str,
        start: tuple[float, int],
        passed: Callable[[Waiting], int | None],
    ) -> Iterator[Waiting]:
        """The tickets of one priority, from a place on; no cursor stays open in between.

        Args:
            priority: Theirs.
            beyond, direction: Which way.
            start: When the first was queued at the earliest, or the latest, and its number.
            passed: Tells of the first one up to which number those don't count that were queued at
                the same instant, which may be thousands; None where it counts.
        """
        sql = (
            f"FROM {_RANKED_TICKETS} WHERE ranked.type = ? AND ranked.priority = ? "
            f"AND (ranked.queued_at, ranked.number) {beyond} (?, ?) "
            f"ORDER BY ranked.queued_at {direction}, ranked.number {direction} LIMIT ?"
        )
        limit = _FIRST_ROWS
        while True:
            found = self._read(sql, self._type, priority, *start, limit)
            number = passed(found[0]) if found else None
            if number is not None:
                start = found[0].queued_at, number
                continue
            yield from found
            if len(found) < limit:
                return
            start, limit = (found[-1].queued_at, found[-1].number), limit * _MORE_ROWS
