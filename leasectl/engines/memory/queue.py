"""The queue of a pool, and who may claim what."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from leasectl.engines.membership import Properties
from leasectl.engines.pacing import effective_priority, next_rise
from leasectl.engines.possible import Want, matches, want_of
from leasectl.model import Ticket, Where

# What places are ordered by, the lowest first: the effective priority, negated, and the number.
Rank = tuple[int, int]
_ANY = Want()
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
        """The one resource that it could use; None for more."""
        return self.ticket.claimant.request.name

    @cached_property
    def want(self) -> Want:
        """What it could use."""
        return want_of(self.ticket.claimant.request)

    @property
    def priority(self) -> int:
        """As asked for."""
        return self.ticket.claimant.request.priority


class Kept(NamedTuple):
    """What better places wait for, and so keep from another.

    Args:
        names: By name.
        wheres: By what it is.
        properties: What a resource is.
    """

    names: frozenset[str]
    wheres: tuple[Where, ...]
    properties: Callable[[str], Properties]

    def has(self, name: str) -> bool:
        """Tell whether a resource is kept."""
        if name in self.names:
            return True
        return any(matches(where, self.properties(name)) for where in self.wheres)


class Queue:
    """The places of one pool: the higher its effective priority, then the earlier, the better.

    Those of one priority keep their order, however long they wait. So each priority has a line, of
    which the first is the best, and whoever else is asked about is found by bisection. Taking one
    out moves those behind it within its line, in one go: of 10,000 that is a matter of
    microseconds.

    Args:
        now: The elapsed clock.
        aging_seconds: Of the pool.
        properties: What a resource is, by its name.
    """

    def __init__(
        self,
        now: Callable[[], float],
        aging_seconds: float,
        properties: Callable[[str], Properties] = lambda _: (),
    ) -> None:
        self.aging_seconds = aging_seconds
        self._now = now
        self._properties = properties
        self._places: dict[int, Place] = {}
        self._lines: _Lines = {}
        self._where_count = 0  # of those in the queue that say what has to be so
        self._competing: dict[Want, _Lines] = {}  # those not suspended, by what they could use

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
        self._where_count += bool(place.want.where)
        self._lines.setdefault(place.priority, []).append(place.ticket.number)
        self.resume(place)

    def remove(self, place: Place) -> None:
        """Take out a place that is in the queue."""
        self.suspend(place)
        _take_out(self._lines, place)
        del self._places[place.ticket.number]
        self._where_count -= bool(place.want.where)

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
        line = self._competing.get(place.want, {}).get(place.priority)
        return self._places[line[0]] if line and line[0] > place.ticket.number else None

    def _is_first(self, place: Place) -> bool:
        line = self._competing.get(place.want, {}).get(place.priority)
        return line is not None and line[0] == place.ticket.number

    def _waited(self, place: Place) -> float:
        return self._now() - place.put_at

    def _rank(self, place: Place) -> Rank:
        return -self.effective_priority(place), place.ticket.number

    # Whose turn it is

    def suspend(self, place: Place) -> None:
        """Have a place that is in the queue keep nobody from anything, if it did."""
        if not self.is_suspended(place):
            lines = self._competing[place.want]
            _take_out(lines, place)
            if not lines:
                del self._competing[place.want]

    def resume(self, place: Place) -> None:
        """Have a suspended place count again, where it always was."""
        lines = self._competing.setdefault(place.want, {})
        insort(lines.setdefault(place.priority, []), place.ticket.number)

    def is_suspended(self, place: Place) -> bool:
        """Tell whether others may pass a place that is in the queue."""
        line = self._competing.get(place.want, {}).get(place.priority, ())
        at = bisect_left(line, place.ticket.number)
        return at == len(line) or line[at] != place.ticket.number

    def is_turn_of(self, place: Place) -> bool:
        """Tell whether no better place could use all that this one could, as far as that is sure.

        Those that could use some of it keep that from it (`kept_from`), be it all there is by now.
        """
        if place.name is not None:
            rivals = self._rivals_for(place.name)
        else:
            rivals = [self._first_of(_ANY), self._first_of(place.want)]
        return not any(each is not None and self._is_better(each, place) for each in rivals)

    def is_alone(self, place: Place) -> bool:
        """Tell whether no better place could use anything that this one could."""
        if place.name is not None:
            return self.is_turn_of(place)
        return next(self.better_than(place), None) is None

    def kept_from(self, place: Place) -> Kept:
        """What better places wait for, for one without a name whose turn it is."""
        better: list[Want] = []
        if place.name is None and len(self._competing) > 1:
            better = [each.want for each in self.better_than(place)]
        names = frozenset(each.name for each in better if each.name is not None)
        wheres = tuple(each.where for each in better if each.name is None and each.where)
        return Kept(names, wheres, self._properties)

    def could_use(self, place: Place, name: str) -> bool:
        """Tell whether a resource of the pool would do."""
        return place.want.could_use(name, self._properties(name))

    def first_for(self, name: str) -> Place | None:
        """The best place that could use a resource."""
        return self._best(self._rivals_for(name))

    def better_than(self, place: Place) -> Iterator[Place]:
        """The best for each that could be wanted that are better than a place."""
        for want in self._competing:
            first = self._first_of(want)
            if first is not None and self._is_better(first, place):
                yield first

    def behind(self, place: Place, *, whatever: bool) -> Iterator[Place]:
        """Those whose turn may be next when a place has left, or counts no longer.

        The best for each that could be wanted, of those that it alone may have kept from it, and
        the first behind it that could use any.

        Args:
            place: It has left, or counts no longer.
            whatever: It kept the pool's time from those that could use something else, too.
        """
        rank = self._rank(place)
        plain = self._next_of(self._competing.get(_ANY, {}), rank)
        wants = [each for each in self._competing if each.is_particular]
        if place.name is not None and not whatever:
            properties = self._properties(place.name)
            wants = [each for each in wants if each.could_use(place.name, properties)]
        for want in wants:
            particular = self._next_of(self._competing.get(want, {}), rank)
            if particular is not None and (plain is None or self._is_better(particular, plain)):
                yield particular
        if plain is not None:
            yield plain

    def next_to(self, place: Place) -> Place | None:
        """The nearest place behind one."""
        return self._next_of(self._lines, self._rank(place))

    def count_better(self, place: Place) -> int:
        """How many places that count are better than one and could use what it could."""
        rank = self._rank(place)
        wants = self._competing if place.name is None else self._wants_for(place.name)
        lines = (line for want in wants for line in self._competing[want].items())
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
        return [self._first_of(want) for want in self._wants_for(name)]

    def _wants_for(self, name: str) -> list[Want]:
        """What is wanted that a resource would do for."""
        own = [want for want in (_ANY, Want(name)) if want in self._competing]
        if self._where_count == 0:  # in most pools
            return own
        properties = self._properties(name)
        return own + [
            each for each in self._competing if each.where and each.could_use(name, properties)
        ]

    def _first_of(self, want: Want) -> Place | None:
        lines = self._competing.get(want, {})
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
