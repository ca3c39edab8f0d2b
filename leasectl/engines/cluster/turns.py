"""Decide whose turn it is, and for what: pure functions.

A ticket may take a resource only if no better one could use it: with a higher effective priority,
or of equals with a smaller place. One that could use all that another could is before it; others
keep from it only what they could use, by its name or by what it is. What can't be met by what is in
the pool now keeps nothing from anybody; nor does one that has become a claim, of which its waiter
is taking the ticket away; nor one whose waiter is dead.

Effective priorities are what the owners of tickets say, by their own clocks: clocks of different
hosts are never compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from leasectl.engines.cluster.objects import ResourceObject, TicketObject
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.facts import Standing
from leasectl.engines.rules.membership import Member
from leasectl.engines.rules.possible import Want


class Over(NamedTuple):
    """What is over by now, as an observer has seen it.

    Args:
        tickets: Of the dead: the names of their objects.
        claims: Of those whose time is over: the names of the objects of their resources.
        lives: Of resources whose time in their pool is over.
        graces: Of resources whose grace is over.
    """

    tickets: Set[str] = frozenset()
    claims: Set[str] = frozenset()
    lives: Set[str] = frozenset()
    graces: Set[str] = frozenset()


NOTHING_OVER = Over()


class Turn(NamedTuple):
    """How it stands for one ticket.

    Args:
        is_met: What is in the pool could meet it, held or not.
        before: The nearest better one that could use all that it could, or for which it is time
            where the pool has a pace; None if there is none.
        others: If there is none, the better ones that keep something from it.
        free: What it may take, least recently acquired first; what is over among it.
    """

    is_met: bool
    before: TicketObject | None = None
    others: tuple[TicketObject, ...] = ()
    free: tuple[ResourceObject, ...] = ()


def in_order(view: PoolView, over: Over = NOTHING_OVER) -> list[TicketObject]:
    """Return the tickets that wait, the best first."""
    return list(_waiting((name for _, _, name in view.ranks()), view, over))


def is_waited_in(view: PoolView) -> bool:
    """Return whether anybody waits in a pool."""
    return next(_waiting(view.tickets, view, NOTHING_OVER), None) is not None


def better_than(
    ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER
) -> list[TicketObject]:
    """Return those before a ticket, the best first, which needn't be in the queue itself."""
    return list(nearest_first(ticket, view, over))[::-1]


def nearest_first(
    ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER
) -> Iterator[TicketObject]:
    """Iterate over those before a ticket, the nearest first."""
    ranks = view.ranks()
    at = bisect_left(ranks, view.rank(ticket))
    names = (ranks[n][2] for n in range(at - 1, -1, -1))
    # If somebody has edited it, it may be before itself.
    return _waiting((each for each in names if each != ticket.id.name), view, over)


def _waiting(names: Iterable[str], view: PoolView, over: Over) -> Iterator[TicketObject]:
    for name in names:
        ticket = view.tickets[name]
        if name not in over.tickets and not view.is_served(ticket):
            yield ticket


def _met(tickets: Iterable[TicketObject], view: PoolView) -> Iterator[TicketObject]:
    """Iterate over those of some tickets that can be met by what is in the pool."""
    return (each for each in tickets if each.count <= view.usable(each.want))


def members_of(view: PoolView) -> list[Member]:
    """Return what is so of all names in the pool."""
    return [each.member for each in view.resources.values()]


def free_in(view: PoolView, over: Over = NOTHING_OVER) -> list[ResourceObject]:
    """Return what can be claimed, least recently acquired first."""
    return sorted(_free(view, over), key=lambda each: (each.fence, each.name))


def count_free(view: PoolView, want: Want, over: Over) -> int:
    """Return how much of that would do, where the queue is empty."""
    return sum(_would_do(want, each) for each in _free(view, over))


def _free(view: PoolView, over: Over) -> Iterator[ResourceObject]:
    for name, each in view.resources.items():
        if (
            (each.claim is None or name in over.claims)
            and each.member.takes_holders
            and (each.grace_seconds is None or name in over.graces)
            and name not in over.lives
        ):
            yield each


def turn_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> Turn:
    """Return how it stands for a ticket, which needn't be in the queue yet."""
    if view.usable(ticket.want) < ticket.count:
        return Turn(is_met=False)
    if view.pool is not None and view.pool.settings.pace_seconds > 0:
        return _paced_turn(ticket, view, over)
    others = []
    for each in _met(nearest_first(ticket, view, over), view):
        if _keeps_all(each.want, ticket.want, view):
            return Turn(is_met=True, before=each)
        others.append(each)
    return _own_turn(ticket, others[::-1], free_in(view, over))


def _paced_turn(ticket: TicketObject, view: PoolView, over: Over) -> Turn:
    """Return the same where a better one that could be met now has its turn alone."""
    met = list(_met(better_than(ticket, view, over), view))
    free = free_in(view, over)
    for at in reversed(range(len(met))):
        if _keeps_all(met[at].want, ticket.want, view):
            return Turn(is_met=True, before=met[at])
        if len(_left(met[at].want, met[:at], free)) >= met[at].count:
            return Turn(is_met=True, before=met[at])
    return _own_turn(ticket, met, free)


def _own_turn(
    ticket: TicketObject, others: Sequence[TicketObject], free: Sequence[ResourceObject]
) -> Turn:
    return Turn(is_met=True, others=tuple(others), free=_left(ticket.want, others, free))


def is_before(one: TicketObject, other: TicketObject, view: PoolView) -> bool:
    """Return whether one is better than another, in the pool that they are in."""
    return view.rank(one) < view.rank(other)


def position_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> int:
    """Return its position among those that could use what it could; 1 if no better one could."""
    met = list(_met(nearest_first(ticket, view, over), view))
    if ticket.want.name is not None:
        met = [each for each in met if _keeps_all(each.want, ticket.want, view)]
    return 1 + len(met)


def unmet_in(view: PoolView, tickets: Iterable[TicketObject]) -> frozenset[str]:
    """Return the tickets that what is in the pool can't meet now: the names of their objects."""
    return frozenset(each.id.name for each in tickets if each.count > view.usable(each.want))


def to_follow(
    ticket: TicketObject, turn: Turn, view: PoolView, over: Over, *, places: int, behind: int = 0
) -> TicketObject | None:
    """Return the ticket whose end is all that one has to hear of, where many are before it.

    So many places before it, that it is one of those who are next when that has gone. Not where
    they count with more in time: then it has to hear how the pool grants.

    Args:
        ticket: The one.
        turn: Of it.
        view: The pool.
        over: What is over in it.
        places: How many.
        behind: So many are many.
    """
    if turn.before is None or view.ages:
        return None
    ahead, followed = 0, None
    for each in _met(nearest_first(ticket, view, over), view):
        ahead += _keeps_all(each.want, ticket.want, view)
        if followed is None and ahead >= places:
            followed = each
        if followed is not None and ahead >= behind:
            return followed
    return None


def standing_of(
    ticket: TicketObject, view: PoolView, over: Over, *, next_grant_at: float | None
) -> Standing:
    """Return a waiter's position and what it waits for.

    Args:
        ticket: Its own.
        view: The pool, which is there.
        over: What is over in it.
        next_grant_at: When its pace allows one, on the elapsed clock; None for now.
    """
    assert view.pool is not None
    held = [
        each.claim
        for name, each in view.resources.items()
        if each.claim is not None and name not in over.claims
    ]
    standing = Standing(
        position=position_of(ticket, view, over),
        others=sum(each.id.name != ticket.id.name for each in in_order(view, over)),
        held=len(held),
        capacity=len(view.resources),
        next_grant_at=next_grant_at,
        pace_seconds=view.pool.settings.pace_seconds,
    )
    if not held:
        return standing
    longest = min(held, key=lambda claim: claim.acquire_time)
    return standing._replace(
        longest_holder=longest.holder_identity, longest_since=longest.acquire_time
    )


def _keeps_all(theirs: Want, own: Want, view: PoolView) -> bool:
    """Return whether one could use all that another could, as far as that is sure."""
    if own.name is None:
        return not theirs.is_particular or theirs == own
    resource = view.resource(own.name)
    return resource is not None and _would_do(theirs, resource)


def _left(
    want: Want, better: Sequence[TicketObject], free: Sequence[ResourceObject]
) -> tuple[ResourceObject, ...]:
    """Return what better ones leave to one of what is free."""
    kept = {each.want for each in better}
    return tuple(
        each
        for each in free
        if _would_do(want, each) and not any(_would_do(other, each) for other in kept)
    )


def _would_do(want: Want, resource: ResourceObject) -> bool:
    return want.could_use(resource.name, resource.member.properties)
