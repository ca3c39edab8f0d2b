"""Decide whose turn it is, and for what: the rules of `rules.turns` on the view of a pool.

A ticket doesn't count while the pool can't meet it, while it is parked (its request waits for
another pool as well), once it has become a claim (its waiter is about to delete it), or when its
waiter is dead. How it stands for a ticket is judged as if that one weren't parked.

Effective priorities are what the owners of tickets write, by their own clocks: clocks of different
hosts are never compared.

Pace: a pool owes its pace a number of grants, the level. Each grant adds one, each pace that goes
by takes one off, and no grant may lift it above the burst. Before a waiter claims, it writes the
level with its grant into the pool's object, guarded by the version that it has seen. How much time
has gone by since the last grant is what one host has observed by its own clock (`observed`), not a
date. So grants are never faster than the pace. A waiter that has just arrived at a pool that nobody
watched waits one pace more at most.

Why never faster: an observer sees a grant after it was written, and writes its own after it has
read its clock. So more time lies between the two writes than it has counted. No other grant lies
between them, since that would have changed the object. By induction, the level that it writes is
never too low. A level that was written for a claim that failed costs a pace.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from leasectl.engines.cluster.objects import PoolObject, ResourceObject, TicketObject
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.cluster.view import NOTHING_OVER, Over, PoolView
from leasectl.engines.facts import Standing
from leasectl.engines.rules.membership import Member
from leasectl.engines.rules.pace import after_change, after_grant, next_grant_at
from leasectl.engines.rules.possible import Want
from leasectl.engines.rules.turns import blocks, left_to, next_granted, position

# What is left of it by then is an error of numbers.
_ROUNDING_SECONDS = 1e-6


class Turn(NamedTuple):
    """How it stands for one ticket.

    Args:
        is_met: What is in the pool could meet it, held or not.
        before: The nearest better one that blocks it, or in a pool with a pace the one that gets
            the next grant; None if there is none.
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


def nearest_first(
    ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER
) -> Iterator[TicketObject]:
    """Iterate over those before a ticket that aren't parked, the nearest first."""
    ranks = view.ranks()
    at = bisect_left(ranks, view.rank(ticket))
    names = (ranks[n][2] for n in range(at - 1, -1, -1))
    # If somebody has edited it, it may be before itself.
    better = _waiting((each for each in names if each != ticket.id.name), view, over)
    return (each for each in better if not each.is_parked)


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
    others = []
    for each in _met(nearest_first(ticket, view, over), view):
        if blocks(each.want, ticket.want, _in(view)):
            return Turn(is_met=True, before=each)
        others.append(each)
    others.reverse()
    free = free_in(view, over)
    if view.pool is not None and view.pool.settings.pace_seconds > 0:
        before = next_granted(others, free, lambda each, resource: _would_do(each.want, resource))
        if before is not None:
            return Turn(is_met=True, before=before)
    left = left_to(ticket.want, {each.want for each in others}, free, _would_do)
    return Turn(is_met=True, others=tuple(others), free=tuple(left))


def position_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> int:
    """Return its position among those that could use what it could; 1 if no better one could."""
    better = [each.want for each in _met(nearest_first(ticket, view, over), view)]
    return position(ticket.want, better, _in(view))


def unmet_in(view: PoolView, tickets: Iterable[TicketObject]) -> frozenset[str]:
    """Return the tickets that what is in the pool can't meet now: the names of their objects."""
    return frozenset(each.id.name for each in tickets if each.count > view.usable(each.want))


def to_follow(
    ticket: TicketObject, view: PoolView, over: Over, *, places: int, behind: int = 0
) -> TicketObject | None:
    """Return the ticket whose end is all that one has to hear of, where many are before it.

    So many places before it, that it is one of those who are next when that has gone. Not where
    they count with more in time: then it has to hear how the pool grants.

    Args:
        ticket: The one.
        view: The pool.
        over: What is over in it.
        places: How many.
        behind: So many are many.
    """
    if view.ages:
        return None
    ahead, followed = 0, None
    for each in _met(nearest_first(ticket, view, over), view):
        ahead += blocks(each.want, ticket.want, _in(view))
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


def _in(view: PoolView) -> Callable[[Want, str], bool]:
    """Return what tells whether a ticket could use the resource of a name in a pool."""

    def could_use(want: Want, name: str) -> bool:
        resource = view.resource(name)
        return resource is not None and _would_do(want, resource)

    return could_use


def _would_do(want: Want, resource: ResourceObject) -> bool:
    return want.could_use(resource.name, resource.member.properties)


def seconds_left(pool: PoolObject, observed: Observed, now: float) -> float:
    """How long it takes until the next grant, as far as was observed; 0 for no time.

    Args:
        pool: As it was just seen.
        observed: Since when its last grant has been known.
        now: On the elapsed clock.
    """
    if not pool.settings.pace_seconds or not pool.last_grant:
        return 0.0
    counted = _counted(pool, observed, now)
    due = next_grant_at(pool.settings, _paid_until(pool), counted)
    left = 0.0 if due is None else due - counted
    return left if left > _ROUNDING_SECONDS else 0.0


def with_grant(pool: PoolObject, grant: str, observed: Observed, now: float) -> PoolObject:
    """Return a pool whose pace has let one more grant through.

    Args:
        pool: As it was just seen; its pace allows it.
        grant: What tells that grant from all others.
        observed: Since when the last grant has been known.
        now: On the elapsed clock.
    """
    settings = pool.settings
    counted = _counted(pool, observed, now) if pool.last_grant else 0.0
    owed = after_grant(settings, _paid_until(pool), counted) - counted
    level = min(settings.burst, owed / settings.pace_seconds)
    return pool._replace(level=level, last_grant=grant)


def _paid_until(pool: PoolObject) -> float:
    """Return when the grants are paid off, in seconds since the last of them was seen."""
    return after_change(pool.settings, pool.level * pool.settings.pace_seconds, 0.0)


def _counted(pool: PoolObject, observed: Observed, now: float) -> float:
    since = observed.since(f"{pool.id.uid} pace", pool.last_grant, pool.id.version)
    return max(0.0, now - since)
