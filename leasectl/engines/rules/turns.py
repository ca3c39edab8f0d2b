"""The order of a queue, which ticket blocks which, and what a ticket may take.

A ticket may take a resource only if no better ticket that counts could use it. Better means higher
effective priority, then the smaller number. A ticket doesn't count while it is suspended, while the
pool can't meet it, or when its waiter is dead: an engine leaves those out before it asks here.

In a pool with a pace, the next grant belongs to the best ticket that can be met by what better ones
leave it.

An engine that asks its database for speed (`engines.local`) has to give the same answers; a test
compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Rank(NamedTuple):
    """A position in the order of a queue; the lower, the better.

    Args:
        below: The effective priority, negated.
        number: Of the ticket.
        name: Of the ticket's object, where two tickets may have one number.
    """

    below: int
    number: int
    name: str = ""


def effective_priority(priority: int, waited_seconds: float, aging_seconds: float) -> int:
    """Return the priority that a ticket counts with: each aging period adds one.

    Args:
        priority: As asked for.
        waited_seconds: Since its ticket was put.
        aging_seconds: Of its pool; 0 for none.
    """
    if not aging_seconds:
        return priority
    return priority + int(max(0.0, waited_seconds) // aging_seconds)


def next_rise(waited_seconds: float, aging_seconds: float) -> float | None:
    """Return in how many seconds the effective priority is one higher; None for never."""
    if not aging_seconds:
        return None
    waited = max(0.0, waited_seconds)
    return (waited // aging_seconds + 1) * aging_seconds - waited


class Wanted(Protocol):
    """The resources that a ticket could use.

    Attributes:
        name: The one resource that will do; None for any.
        where: The required properties; equal for equal requirements, and false for none.
    """

    @property
    def name(self) -> str | None: ...

    @property
    def where(self) -> Hashable: ...


class Counted(Protocol):
    """A ticket that asks for a number of resources."""

    @property
    def count(self) -> int: ...


W = TypeVar("W", bound=Wanted)
C = TypeVar("C", bound=Counted)


def blocks(better: W, own: Wanted, could_use: Callable[[W, str], bool]) -> bool:
    """Return whether a better ticket could use every resource that another could.

    Args:
        better: What the better ticket could use.
        own: What the other ticket could use.
        could_use: Returns whether a ticket could use a resource of that name.
    """
    if own.name is not None:
        return could_use(better, own.name)
    return better.name is None and (not better.where or better.where == own.where)


def left_to(
    own: T, better: Iterable[T], free: Iterable[R], could_use: Callable[[T, R], bool]
) -> Iterator[R]:
    """Yield the free resources that a ticket may take: those that no better ticket could use."""
    others = tuple(better)
    for each in free:
        if could_use(own, each) and not any(could_use(other, each) for other in others):
            yield each


def shares(
    tickets: Iterable[T], free: Iterable[R], could_use: Callable[[T, R], bool]
) -> Iterator[tuple[T, list[R]]]:
    """Yield each ticket with what it may take, until nothing is left.

    Args:
        tickets: The best first.
        free: The free resources.
        could_use: Returns whether a ticket could use a resource.
    """
    left = list(free)
    if not left:
        return
    for ticket in tickets:
        share: list[R] = []
        rest: list[R] = []
        for each in left:
            (share if could_use(ticket, each) else rest).append(each)
        yield ticket, share
        left = rest
        if not left:
            return


def next_granted(
    tickets: Iterable[C], free: Iterable[R], could_use: Callable[[C, R], bool]
) -> C | None:
    """Return the ticket that gets the next grant of a pool with a pace; None if none can be met.

    The arguments are those of `shares`.
    """
    for ticket, share in shares(tickets, free, could_use):
        if len(share) >= ticket.count:
            return ticket
    return None


def position(own: W, better: Sequence[W], could_use: Callable[[W, str], bool]) -> int:
    """Return a ticket's queue position: one more than the better tickets in its way.

    A ticket for one name counts only those that could use that resource.
    """
    if own.name is None:
        return 1 + len(better)
    return 1 + sum(blocks(each, own, could_use) for each in better)
