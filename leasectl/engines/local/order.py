"""The order of a queue with priorities or ageing.

As long as all are, their numbers are their order, and nothing here is needed. From the first on
that isn't, each ticket of that queue has a row in ``ranked_ticket``. Of one priority the earlier is
always the better, so to find who comes first, or next to somebody, is to ask an index once for each
priority that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from leasectl.engines.pacing import effective_priority, next_rise

if TYPE_CHECKING:
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
# In this order the index of places is what is gone through.
_RANKED_TICKETS = f"ranked_ticket AS ranked CROSS JOIN ticket ON {_SAME} {_BESIDE}"
# Of a hundred priorities most are asked for one ticket only.
_FIRST_ROWS, _MORE_ROWS = 2, 8
_BEFORE_ALL, _BEHIND_ALL = float("-inf"), float("inf")
_LARGEST = 2**62  # number of a ticket
# How much clocks and sums of theirs may be rounded, in seconds; what they let in is looked at.
_ROUNDING_SECONDS = 0.001


class Rank(NamedTuple):
    """A place in the order; the lower, the better.

    Args:
        below: The effective priority, negated.
        number: Of the ticket.
    """

    below: int
    number: int


class Ranked(Protocol):
    """What has a place in such an order: a ticket.

    Attributes:
        number: Its own.
        priority: As asked for; None in a queue where all are alike.
        queued_at: On the elapsed clock.
    """

    number: int
    priority: int | None
    queued_at: float


Found = TypeVar("Found", bound=Ranked)


class LocalOrder(Generic[Found]):
    """The order of one pool's queue at one instant.

    Args:
        state: Where it is kept.
        pool_type: Of the pool.
        now: On the elapsed clock.
        read: Finds tickets by some SQL, from its ``FROM`` on, and its values.
    """

    def __init__(
        self, state: State, pool_type: str, *, now: float, read: Callable[..., list[Found]]
    ) -> None:
        self._state = state
        self._type = pool_type
        self._now = now
        self._read = read
        rows = state.query("SELECT aging_seconds FROM pool_setting WHERE type = ?", pool_type)
        self._aging: float = rows[0]["aging_seconds"] if rows else 0.0

    # Rows

    def add(self, number: int, priority: int) -> None:
        """Give a ticket that was just put its place, and all before it theirs, if they have none.

        Args:
            number: Its own.
            priority: As asked for.
        """
        self.complete()
        self._insert(number, priority, self._now)

    def complete(self) -> None:
        """Give those tickets a place that have none, as all were alike so far."""
        rows = self._state.query(
            "SELECT number, priority, queued_at "
            "FROM ticket LEFT JOIN handle ON handle.id = ticket.owner "
            "WHERE ticket.type = ? AND number > ? ORDER BY number DESC",
            self._type,
            self._last(),
        )
        latest = self._now
        for row in rows:
            if row["queued_at"] is not None:  # else its time began anew, with the machine
                latest = min(latest, row["queued_at"])
            self._insert(row["number"], row["priority"] or 0, latest)

    def _insert(self, number: int, priority: int, queued_at: float) -> None:
        self._state.db.execute(
            "INSERT OR REPLACE INTO ranked_ticket (type, number, priority, queued_at) "
            "VALUES (?, ?, ?, ?)",
            (self._type, number, priority, queued_at),
        )

    def _last(self) -> int:
        """The number of the last ticket that has a row; 0 for none."""
        rows = self._state.query(
            "SELECT number FROM ranked_ticket WHERE type = ? ORDER BY number DESC LIMIT 1",
            self._type,
        )
        return rows[0]["number"] if rows else 0

    # Places

    def rank(self, ticket: Found, then: float | None = None) -> Rank:
        """The place of a ticket, now or at another time."""
        if ticket.priority is None:
            return Rank(0, ticket.number)
        waited = (self._now if then is None else then) - ticket.queued_at
        return Rank(-effective_priority(ticket.priority, waited, self._aging), ticket.number)

    def best_first(self) -> Iterator[Found]:
        """All tickets."""
        ascending = (self._ascending(each, _BEFORE_ALL) for each in self._priorities())
        return self._merged(ascending)

    def behind(self, ticket: Found, place: Rank | None = None) -> Generator[Found, None, None]:
        """Those that a ticket is better than, the nearest first.

        Args:
            ticket: Which.
            place: One that it had before; None for its own.
        """
        where = place or self.rank(ticket)
        ascending = (
            self._ascending(each, self._divide(ticket, where, each) - _ROUNDING_SECONDS, where)
            for each in self._priorities()
            if self._aging or each <= -where.below
        )
        yield from self._merged(ascending)

    def before(self, ticket: Found) -> Iterator[Found]:
        """Those that are better than a ticket, the nearest first."""
        where = self.rank(ticket)
        descending = (
            self._descending(each, self._divide(ticket, where, each) + _ROUNDING_SECONDS, where)
            for each in reversed(self._priorities())
            if self._aging or each >= -where.below
        )
        return self._merged(descending, reverse=True)

    def _merged(
        self, lines: Iterator[Iterator[Found]], *, reverse: bool = False
    ) -> Iterator[Found]:
        """Return the tickets of several priorities in one order.

        Without ageing the priorities follow each other, so a line is read only when it is reached.
        """
        if not self._aging:
            return chain.from_iterable(lines)
        return merge(*lines, key=self.rank, reverse=reverse)

    def has_passed(self, ticket: Found, place: Rank) -> bool:
        """Tell whether a ticket is better now than another that is better than a place it had.

        Of one priority none passes another, however long they wait.
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

    def overtakes_at(self, ticket: Found, other: Found) -> float | None:
        """When a ticket will be better than one that is better now; None for never.

        That can only be when its own priority rises, and if not at the next time, then at none:
        from there on all comes again, one higher each.
        """
        left = next_rise(self._now - ticket.queued_at, self._aging)
        if left is None:
            return None
        then = self._now + max(left, _ROUNDING_SECONDS)  # it isn't looked for again and again
        own = Rank(self.rank(ticket).below - 1, ticket.number)
        return then if own < self.rank(other, then) else None

    def _divide(self, ticket: Found, place: Rank, priority: int) -> float:
        """When those of a priority were queued of which the earlier are better than a place.

        Args:
            ticket: Whose place.
            place: The place.
            priority: Theirs.
        """
        above = -place.below - priority  # by how much they have to age to be equal
        if not self._aging:
            if above == 0:
                return ticket.queued_at
            return _BEFORE_ALL if above > 0 else _BEHIND_ALL
        equal_until = self._now - above * self._aging  # who was queued by then is equal or better
        return min(equal_until, max(ticket.queued_at, equal_until - self._aging))

    def _priorities(self) -> list[int]:
        return [row["priority"] for row in self._state.query(_PRIORITIES, type=self._type)]

    def _ascending(self, priority: int, since: float, place: Rank | None = None) -> Iterator[Found]:
        """The tickets of one priority that were queued since a time, and are behind a place."""

        def passed(found: Found) -> int | None:
            if place is None or self.rank(found) > place:
                return None
            return place.number if self.rank(found).below == place.below else _LARGEST

        return self._of(priority, ">", "", (since, -1), passed)

    def _descending(self, priority: int, until: float, place: Rank) -> Iterator[Found]:
        """Those that were queued until a time, and are before a place, the latest first."""

        def passed(found: Found) -> int | None:
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
        passed: Callable[[Found], int | None],
    ) -> Iterator[Found]:
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
