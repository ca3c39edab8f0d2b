"""The queue of one pool, and who in it may claim what."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

from leasectl.model import Ticket


@dataclass(frozen=True, eq=False)
class Place:
    """A ticket in a queue, since when (wall clock), and what wakes who waits with it."""

    ticket: Ticket
    since: float
    wake: Callable[[], object]

    @property
    def name(self) -> str | None:
        """The one resource that it could use; None for any."""
        return self.ticket.claimant.request.name


class Queue:
    """The places of one pool in the order of their numbers: the lower, the better.

    Whichever is asked about is found by bisection. Taking one out moves those behind it within
    the list, in one go: of 10,000 that is a matter of microseconds.
    """

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._numbers: list[int] = []
        self._competing: dict[str | None, list[int]] = {}  # those not suspended, by their names

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Place]:
        return (self._places[number] for number in self._numbers)

    def __contains__(self, place: Place) -> bool:
        # A pool that was made anew counts its tickets anew.
        return self._places.get(place.ticket.number) is place

    def append(self, place: Place) -> None:
        """Put a place at the end; its number is the largest."""
        self._places[place.ticket.number] = place
        self._numbers.append(place.ticket.number)
        self.resume(place)

    def remove(self, place: Place) -> None:
        """Take out a place that is in the queue."""
        self.suspend(place)
        del self._numbers[bisect_left(self._numbers, place.ticket.number)]
        del self._places[place.ticket.number]

    # Whose turn it is

    def suspend(self, place: Place) -> None:
        """Have a place that is in the queue keep nobody from anything, if it did."""
        if not self.is_suspended(place):
            alike = self._competing[place.name]
            del alike[bisect_left(alike, place.ticket.number)]
            if not alike:
                del self._competing[place.name]

    def resume(self, place: Place) -> None:
        """Have a suspended place count again, where it always was."""
        insort(self._competing.setdefault(place.name, []), place.ticket.number)

    def is_suspended(self, place: Place) -> bool:
        """Tell whether others may pass a place that is in the queue."""
        alike = self._competing.get(place.name, ())
        at = bisect_left(alike, place.ticket.number)
        return at == len(alike) or alike[at] != place.ticket.number

    def is_turn_of(self, place: Place) -> bool:
        """Tell whether no better place could use all that this one could."""
        rivals = [self._first_of(None)] if place.name is None else self._rivals_for(place.name)
        return not any(each.ticket.number < place.ticket.number for each in rivals if each)

    def is_alone(self, place: Place) -> bool:
        """Tell whether no better place could use anything that this one could."""
        if place.name is not None:
            return self.is_turn_of(place)
        return all(alike[0] >= place.ticket.number for alike in self._competing.values())

    def kept_from(self, place: Place) -> frozenset[str]:
        """The names that better places wait for; for one without a name whose turn it is."""
        if place.name is not None or len(self._competing) <= 1:
            return frozenset()
        number = place.ticket.number
        return frozenset(n for n, alike in self._competing.items() if n and alike[0] < number)

    def first_for(self, name: str) -> Place | None:
        """The best place that could use a resource."""
        rivals = [each for each in self._rivals_for(name) if each is not None]
        return min(rivals, key=lambda each: each.ticket.number, default=None)

    def behind(self, place: Place) -> Iterator[Place]:
        """Those whose turn may be next when a place has left, or counts no longer.

        The best for each name, of those that it alone may have kept from it, and the first behind
        it that could use any.
        """
        number = place.ticket.number
        plain = self._next_of(None, number)
        if place.name is not None:
            names = [place.name]
        else:
            names = [name for name in self._competing if name]
        for name in names:
            named = self._next_of(name, number)
            if named is not None and (plain is None or named < plain):
                yield self._places[named]
        if plain is not None:
            yield self._places[plain]

    def next_to(self, place: Place) -> Place | None:
        """The nearest place behind one."""
        at = bisect_left(self._numbers, place.ticket.number + 1)
        return self._places[self._numbers[at]] if at < len(self) else None

    def count_better(self, place: Place) -> int:
        """How many places that count are better than one and could use what it could."""
        names = self._competing if place.name is None else {None, place.name}
        number = place.ticket.number
        return sum(bisect_left(self._competing.get(name, ()), number) for name in names)

    def _rivals_for(self, name: str) -> list[Place | None]:
        return [self._first_of(None), self._first_of(name)]

    def _first_of(self, name: str | None) -> Place | None:
        alike = self._competing.get(name)
        return self._places[alike[0]] if alike else None

    def _next_of(self, name: str | None, number: int) -> int | None:
        alike = self._competing.get(name, ())
        at = bisect_left(alike, number + 1)
        return alike[at] if at < len(alike) else None
