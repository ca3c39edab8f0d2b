"""The queue of one pool, and who in it may claim what."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

from leasectl.engines.ranking import effective_priority, next_rise
from leasectl.model import Ticket

# What places are ordered by, the lowest first: the effective priority, negated, and the number.
Rank = tuple[int, int]
# Numbers of tickets with one priority each, in order. They age alike, so the first stays the best.
_Lines = dict[int, list[int]]


@dataclass(frozen=True, eq=False)
class Place:
    """A ticket in a queue, since when, and what wakes who waits with it.

    Args:
        ticket: The ticket.
        since: Wall clock, seconds since the epoch.
        put_at: The same on the elapsed clock.
        wake: Ends its waiter's sleep.
    """

    ticket: Ticket
    since: float
    put_at: float
    wake: Callable[[], object]

    @property
    def name(self) -> str | None:
        """The one resource that it could use; None for any."""
        return self.ticket.claimant.request.name

    @property
    def priority(self) -> int:
        """As asked for."""
        return self.ticket.claimant.request.priority


class Queue:
    """The places of one pool: the higher its effective priority, then the earlier, the better.

    Those of one priority keep their order, however long they wait. So each priority has a line, of
    which the first is the best, and whoever else is asked about is found by bisection. Taking one
    out moves those behind it within its line, in one go: of 10,000 that is a matter of
    microseconds.

    Args:
        now: The elapsed clock.
        aging_seconds: Of the pool.
    """

    def __init__(self, now: Callable[[], float], aging_seconds: float) -> None:
        self.aging_seconds = aging_seconds
        self._now = now
        self._places: dict[int, Place] = {}
        self._lines: _Lines = {}
        self._competing: dict[str | None, _Lines] = {}  # those not suspended, by their names

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(sorted(self._places.values(), key=self._rank))

    def __contains__(self, place: Place) -> bool:
        # A pool that was made anew counts its tickets anew.
        return self._places.get(place.ticket.number) is place

    def append(self, place: Place) -> None:
        """Put a place at the end of those of its priority; its number is the largest."""
        self._places[place.ticket.number] = place
        self._lines.setdefault(place.priority, []).append(place.ticket.number)
        self.resume(place)

    def remove(self, place: Place) -> None:
        """Take out a place that is in the queue."""
        self.suspend(place)
        _take_out(self._lines, place)
        del self._places[place.ticket.number]

    # Priorities

    def effective_priority(self, place: Place) -> int:
        """The priority of a place with what it has gained by waiting."""
        if not self.aging_seconds:
            return place.priority
        return effective_priority(place.priority, self._waited(place), self.aging_seconds)

    def next_rise(self, place: Place) -> float | None:
        """In how many seconds a place counts for more, and may so become better than others.

        None for never, for those who have a better one of their own priority before them, and as
        long as nobody is better.
        """
        if not self.aging_seconds or not self._is_first(place):
            return None
        if next(self.better_than(place), None) is None:
            return None
        return next_rise(self._waited(place), self.aging_seconds)

    def below(self, place: Place) -> Iterator[Place]:
        """Those who are to look when they count for more, now that a place is better than they."""
        if self.aging_seconds and self._is_first(place):
            for lines in self._competing.values():
                for priority, line in lines.items():
                    first = self._places[line[0]]
                    if priority != place.priority and self._is_better(place, first):
                        yield first

    def follower(self, place: Place) -> Place | None:
        """Of the same priority and for the same name, who is first now that a place has left."""
        line = self._competing.get(place.name, {}).get(place.priority)
        return self._places[line[0]] if line and line[0] > place.ticket.number else None

    def _is_first(self, place: Place) -> bool:
        line = self._competing.get(place.name, {}).get(place.priority)
        return line is not None and line[0] == place.ticket.number

    def _waited(self, place: Place) -> float:
        return self._now() - place.put_at

    def _rank(self, place: Place) -> Rank:
        return -self.effective_priority(place), place.ticket.number

    # Whose turn it is

    def suspend(self, place: Place) -> None:
        """Have a place that is in the queue keep nobody from anything, if it did."""
        if not self.is_suspended(place):
            lines = self._competing[place.name]
            _take_out(lines, place)
            if not lines:
                del self._competing[place.name]

    def resume(self, place: Place) -> None:
        """Have a suspended place count again, where it always was."""
        lines = self._competing.setdefault(place.name, {})
        insort(lines.setdefault(place.priority, []), place.ticket.number)

    def is_suspended(self, place: Place) -> bool:
        """Tell whether others may pass a place that is in the queue."""
        line = self._competing.get(place.name, {}).get(place.priority, ())
        at = bisect_left(line, place.ticket.number)
        return at == len(line) or line[at] != place.ticket.number

    def is_turn_of(self, place: Place) -> bool:
        """Tell whether no better place could use all that this one could."""
        rivals = [self._first_of(None)] if place.name is None else self._rivals_for(place.name)
        return not any(each is not None and self._is_better(each, place) for each in rivals)

    def is_alone(self, place: Place) -> bool:
        """Tell whether no better place could use anything that this one could."""
        if place.name is not None:
            return self.is_turn_of(place)
        return next(self.better_than(place), None) is None

    def kept_from(self, place: Place) -> frozenset[str]:
        """The names that better places wait for; for one without a name whose turn it is."""
        if place.name is not None or len(self._competing) <= 1:
            return frozenset()
        return frozenset(each.name for each in self.better_than(place) if each.name is not None)

    def first_for(self, name: str) -> Place | None:
        """The best place that could use a resource."""
        return self._best(self._rivals_for(name))

    def better_than(self, place: Place) -> Iterator[Place]:
        """The best for each name that are better than a place."""
        for name in self._competing:
            first = self._first_of(name)
            if first is not None and self._is_better(first, place):
                yield first

    def behind(self, place: Place, *, whatever_name: bool) -> Iterator[Place]:
        """Those whose turn may be next when a place has left, or counts no longer.

        The best for each name, of those that it alone may have kept from it, and the first behind
        it that could use any.

        Args:
            place: It has left, or counts no longer.
            whatever_name: It kept the pool's time from those for other names, too.
        """
        rank = self._rank(place)
        plain = self._next_of(self._competing.get(None, {}), rank)
        if place.name is not None and not whatever_name:
            names = [place.name]
        else:
            names = [name for name in self._competing if name]
        for name in names:
            named = self._next_of(self._competing.get(name, {}), rank)
            if named is not None and (plain is None or self._is_better(named, plain)):
                yield named
        if plain is not None:
            yield plain

    def next_to(self, place: Place) -> Place | None:
        """The nearest place behind one."""
        return self._next_of(self._lines, self._rank(place))

    def count_better(self, place: Place) -> int:
        """How many places that count are better than one and could use what it could."""
        names = self._competing if place.name is None else {None, place.name}
        rank = self._rank(place)
        lines = (line for name in names for line in self._competing.get(name, {}).items())
        return sum(self._count_before(rank, priority, line) for priority, line in lines)

    def _is_better(self, place: Place, other: Place) -> bool:
        if not self.aging_seconds:  # most pools, and what is asked most
            mine, others = place.priority, other.priority
            return mine > others or (mine == others and place.ticket.number < other.ticket.number)
        return self._rank(place) < self._rank(other)

    def _best(self, places: list[Place | None]) -> Place | None:
        there = [each for each in places if each is not None]
        if len(there) <= 1:
            return there[0] if there else None
        return min(there, key=self._rank)

    def _rivals_for(self, name: str) -> list[Place | None]:
        return [self._first_of(None), self._first_of(name)]

    def _first_of(self, name: str | None) -> Place | None:
        lines = self._competing.get(name, {})
        return self._best([self._places[line[0]] for line in lines.values()])

    def _next_of(self, lines: _Lines, rank: Rank) -> Place | None:
        """The best in some lines of those behind a rank."""
        behind: list[Place | None] = []
        for priority, line in lines.items():
            at = self._count_before((rank[0], rank[1] + 1), priority, line)
            if at < len(line):
                behind.append(self._places[line[at]])
        return self._best(behind)

    def _count_before(self, rank: Rank, priority: int, line: list[int]) -> int:
        """How many of a line are better than a rank."""
        if not self.aging_seconds:
            if -priority != rank[0]:
                return len(line) if -priority < rank[0] else 0
            return bisect_left(line, rank[1])
        low, high = 0, len(line)
        while low < high:
            middle = (low + high) // 2
            if self._rank(self._places[line[middle]]) < rank:
                low = middle + 1
            else:
                high = middle
        return low


def _take_out(lines: _Lines, place: Place) -> None:
    """Take a place out of its line, which is there."""
    line = lines[place.priority]
    del line[bisect_right(line, place.ticket.number) - 1]
    if not line:
        del lines[place.priority]
