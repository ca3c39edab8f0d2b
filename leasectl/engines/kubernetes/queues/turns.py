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

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from leasectl.engines.kubernetes.objects.objects import ResourceObject, TicketObject
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.membership import Member
from leasectl.engines.possible import Want


class Over(NamedTuple):
    """What is over by now, as whoever looks has observed it.

    Args:
        tickets: Of the dead: the names of their objects.
        claims: Of those whose time is over: the names of the objects of their resources.
        lives: Resources that were to be in their pool for a time: likewise.
        graces: Resources that nobody was to get for a time: likewise.
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


def effective_priority(ticket: TicketObject, view: PoolView) -> int:
    """What a ticket counts with in its pool."""
    aging = view.pool is not None and view.pool.settings.aging_seconds > 0
    return ticket.counts_as if aging else ticket.priority


def in_order(view: PoolView, over: Over = NOTHING_OVER) -> list[TicketObject]:
    """The tickets that wait, the best first."""
    served = served_in(view)
    waiting = [
        each
        for name, each in view.tickets.items()
        if name not in over.tickets and name not in served
    ]
    return sorted(waiting, key=lambda each: _rank(each, view))


def better_than(
    ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER
) -> list[TicketObject]:
    """Those before a ticket, the best first, which needn't be in the queue itself."""
    own = _rank(ticket, view)
    return [
        each
        for each in in_order(view, over)
        if _rank(each, view) < own and each.id.name != ticket.id.name  # if somebody has edited it
    ]


def met_of(tickets: Sequence[TicketObject], view: PoolView) -> list[TicketObject]:
    """Those of some tickets that can be met by what is in the pool."""
    # Many want the same: each kind is counted once.
    usable = {want: count_usable(view, want) for want in {each.want for each in tickets}}
    return [each for each in tickets if each.count <= usable[each.want]]


def count_usable(view: PoolView, want: Want) -> int:
    """How many resources would do, held or not."""
    return sum(
        each.member.takes_holders and want.could_use(each.name, each.member.properties)
        for each in view.resources.values()
    )


def members_of(view: PoolView) -> list[Member]:
    """What is so of all names in the pool."""
    return [each.member for each in view.resources.values()]


def free_in(view: PoolView, over: Over = NOTHING_OVER) -> list[ResourceObject]:
    """What somebody could have, least recently acquired first."""
    free = [
        each
        for name, each in view.resources.items()
        if (each.claim is None or name in over.claims)
        and each.member.takes_holders
        and (each.grace_seconds is None or name in over.graces)
        and name not in over.lives
    ]
    return sorted(free, key=lambda each: (each.fence, each.name))


def turn_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> Turn:
    """How it stands for a ticket, which needn't be in the queue yet."""
    if count_usable(view, ticket.want) < ticket.count:
        return Turn(is_met=False)
    met = met_of(better_than(ticket, view, over), view)
    free = free_in(view, over)
    is_paced = view.pool is not None and view.pool.settings.pace_seconds > 0
    for at in reversed(range(len(met))):
        if _keeps_all(met[at].want, ticket.want, view):
            return Turn(is_met=True, before=met[at])
        if is_paced and len(_left(met[at].want, met[:at], free)) >= met[at].count:
            return Turn(is_met=True, before=met[at])
    return Turn(is_met=True, others=tuple(met), free=_left(ticket.want, met, free))


def ahead_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> list[TicketObject]:
    """The better ones that could use all that it could, the best first.

    As long as any of them waits, it isn't its turn.
    """
    met = met_of(better_than(ticket, view, over), view)
    return [each for each in met if _keeps_all(each.want, ticket.want, view)]


def is_before(one: TicketObject, other: TicketObject, view: PoolView) -> bool:
    """Tell whether one is better than another, in the pool that they are in."""
    return _rank(one, view) < _rank(other, view)


def position_of(ticket: TicketObject, view: PoolView, over: Over = NOTHING_OVER) -> int:
    """Its position among those that could use what it could; 1 when nobody better could."""
    met = met_of(better_than(ticket, view, over), view)
    if ticket.want.name is not None:
        met = [each for each in met if _keeps_all(each.want, ticket.want, view)]
    return 1 + len(met)


def unmet_in(view: PoolView, tickets: Iterable[TicketObject]) -> frozenset[str]:
    """The tickets that what is in the pool can't meet as things are: the names of their objects."""
    waiting = list(tickets)
    met = {each.id.name for each in met_of(waiting, view)}
    return frozenset(each.id.name for each in waiting) - met


def served_in(view: PoolView) -> set[str]:
    """Tickets that have become a whole claim, also one that was given back since."""
    made = Counter(name for each in view.resources.values() for name in each.had_by)
    return {name for name, each in view.tickets.items() if 0 < each.count <= made[name]}


def to_follow(
    ticket: TicketObject, turn: Turn, view: PoolView, over: Over, *, places: int
) -> TicketObject | None:
    """The ticket whose end is all that one has to hear of, where many are before it.

    So many places before it, that it is one of those who are next when that has gone. Not where
    they count with more in time: then it has to hear how the pool grants.
    """
    ages = view.pool is not None and view.pool.settings.aging_seconds > 0
    if turn.before is None or ages:
        return None
    ahead = ahead_of(ticket, view, over)
    return ahead[-places] if len(ahead) >= places else None


def _rank(ticket: TicketObject, view: PoolView) -> tuple[int, int, str]:
    return -effective_priority(ticket, view), ticket.place, ticket.id.name


def _keeps_all(theirs: Want, own: Want, view: PoolView) -> bool:
    """Tell whether it could use all that another could, as far as that is sure."""
    if own.name is None:
        return not theirs.is_particular or theirs == own
    return any(
        each.name == own.name and _would_do(theirs, each) for each in view.resources.values()
    )


def _left(
    want: Want, better: Sequence[TicketObject], free: Sequence[ResourceObject]
) -> tuple[ResourceObject, ...]:
    """What better ones leave to one of what is free."""
    kept = {each.want for each in better}
    return tuple(
        each
        for each in free
        if _would_do(want, each) and not any(_would_do(other, each) for other in kept)
    )


def _would_do(want: Want, resource: ResourceObject) -> bool:
    return want.could_use(resource.name, resource.member.properties)
