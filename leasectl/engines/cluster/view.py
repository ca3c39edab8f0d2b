"""A pool in memory: a list of its objects, kept up to date by a watch.

A list is of one instant. A watch goes on from there, each event with the version of its write; what
is older than the list is in it already, so nothing that was deleted comes back. Several objects may
have one version, where they were changed in one write.

What a judgement needs is kept up to date with each object: the tickets in order, how often each was
served, how many resources would do for each want. So the work for an event doesn't grow with the
queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Set
from typing import NamedTuple

from leasectl.engines.cluster.objects import (
    Found,
    Identity,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.rules.possible import Want
from leasectl.engines.rules.turns import Rank


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


class PoolView:
    """What was seen of a pool; of its objects, those that really are of this type.

    Args:
        pool_type: The type.

    Attributes:
        pool_type: As given.
        version: Of what was seen last: all that was written before is here, as far as it was told.
        pool: The pool itself; None where there is none.
        resources: By the names of their objects.
        tickets: By the names of their objects.
        unreadable: By the names of their objects.
        has_more_tickets: There are some that aren't known here: it was only glanced at.
    """

    def __init__(self, pool_type: str) -> None:
        self.pool_type = pool_type
        self.version = 0
        self.has_more_tickets = False
        self.pool: PoolObject | None = None
        self.resources: dict[str, ResourceObject] = {}
        self.tickets: dict[str, TicketObject] = {}
        self.unreadable: dict[str, Unreadable] = {}
        self._by_name: dict[str, ResourceObject] = {}
        self._had: Counter[str] = Counter()  # by ticket: the resources that it has become
        self._ranks: list[Rank] | None = None  # of all tickets, sorted; None before it is asked for
        self._usable: dict[Want, int] = {}

    @property
    def is_there(self) -> bool:
        """Whether there is a pool that grants."""
        return self.pool is not None and self.pool.state == "open"

    @property
    def is_shown(self) -> bool:
        """Whether people see it: also one that is closing, while something of it is held.

        It grants again as soon as its deletion finds that, unless that is by force.
        """
        return self.is_there or (
            self.is_closing and any(each.claim for each in self.resources.values())
        )

    @property
    def is_closing(self) -> bool:
        """Whether a deletion has begun that may find it in use."""
        return self.pool is not None and self.pool.state == "closing"

    def copy(self) -> PoolView:
        """Return the same, to be looked at while this one changes."""
        copy = PoolView(self.pool_type)
        copy.version, copy.pool = self.version, self.pool
        copy.resources = dict(self.resources)
        copy.tickets = dict(self.tickets)
        copy.unreadable = dict(self.unreadable)
        copy._by_name = dict(self._by_name)
        copy._had = self._had.copy()
        copy._ranks = None if self._ranks is None else list(self._ranks)
        copy._usable = dict(self._usable)
        return copy

    # What is in it

    def find(self, name: str) -> ResourceObject | TicketObject | Unreadable | PoolObject | None:
        """Return what was seen of an object."""
        if self.pool is not None and self.pool.id.name == name:
            return self.pool
        return self.resources.get(name) or self.tickets.get(name) or self.unreadable.get(name)

    def resource(self, name: str) -> ResourceObject | None:
        """Return a resource by its own name."""
        return self._by_name.get(name)

    def rank(self, ticket: TicketObject) -> Rank:
        """Return the rank of a ticket in the queue."""
        return Rank(-self.effective_priority(ticket), ticket.order or ticket.place, ticket.id.name)

    def ranks(self) -> list[Rank]:
        """Return those of all tickets, the best first."""
        if self._ranks is None:
            self._ranks = sorted(map(self.rank, self.tickets.values()))
        return self._ranks

    def effective_priority(self, ticket: TicketObject) -> int:
        """Return what a ticket counts with."""
        return ticket.counts_as if self.ages else ticket.priority

    @property
    def ages(self) -> bool:
        """Whether tickets count with more in time."""
        return self.pool is not None and self.pool.settings.aging_seconds > 0

    def is_served(self, ticket: TicketObject) -> bool:
        """Return whether a ticket has become a whole claim, also one that was given back since."""
        return 0 < ticket.count <= self._had[ticket.id.name]

    def served(self) -> set[str]:
        """Return the names of the objects of all tickets that `is_served`."""
        there = self._had.keys() & self.tickets.keys()
        return {name for name in there if self.is_served(self.tickets[name])}

    def usable(self, want: Want) -> int:
        """Return how many resources would do, held or not."""
        count = self._usable.get(want)
        if count is None:
            count = self._usable[want] = sum(
                each.member.takes_holders and want.could_use(each.name, each.member.properties)
                for each in self.resources.values()
            )
        return count

    # How it changes

    def fill(self, items: Iterable[Found], version: int) -> PoolView:
        """Replace its contents with what a list has shown."""
        self.pool = None
        for found in (self.resources, self.tickets, self.unreadable, self._by_name, self._usable):
            found.clear()
        self._had.clear()
        self._ranks = None
        for each in items:
            self._put(each)
        self.version = version
        return self

    def apply(self, id_: Identity, found: Found | None) -> bool:
        """Take note of what a watch tells; return whether that is new.

        Args:
            id_: Which object, with the version of its write.
            found: As it is; None where it isn't there any more.
        """
        if id_.version < self.version:
            return False
        self.version = id_.version
        before = self.find(id_.name)
        if before is not None and before.id.version > id_.version:
            return False  # what was written here since then
        if found is not None and before is not None and before.id.version == id_.version:
            return False
        self.drop(id_.name)
        if found is not None:
            self._put(found)
        return True

    def end(self, id_: Identity) -> bool:
        """Take note of what has ended by itself; return whether that is new."""
        ticket, resource = self.tickets.get(id_.name), self.resources.get(id_.name)
        seen = ticket or resource
        if seen is None or seen.id.version >= id_.version:  # written with that, or since
            return False
        self.drop(id_.name)
        if ticket is not None:
            self._put(ticket._replace(is_over=True))
        elif resource is not None and resource.claim is not None:
            self._put(resource._replace(claim=resource.claim._replace(is_over=True)))
        return True

    def put(self, found: Found) -> None:
        """Take note of what was written here: the answer to a request, older than nothing seen.

        It doesn't say that anything else is so, so the version stays.
        """
        before = self.find(found.id.name)
        if before is None or before.id.version < found.id.version:
            self.drop(found.id.name)
            self._put(found)

    def drop(self, name: str) -> None:
        """Forget an object."""
        resource, ticket = self.resources.pop(name, None), self.tickets.pop(name, None)
        if resource is not None:
            self._by_name.pop(resource.name, None)
            self._count(resource, -1)
        if ticket is not None and self._ranks is not None:
            rank = self.rank(ticket)
            at = bisect_left(self._ranks, rank)
            if self._ranks[at : at + 1] == [rank]:
                del self._ranks[at]
            else:
                self._ranks = None
        self.unreadable.pop(name, None)
        if self.pool is not None and self.pool.id.name == name:
            self.pool, self._ranks = None, None

    def add_resources(self, resources: Iterable[ResourceObject]) -> PoolView:
        """Add resources, whatever pool they are in."""
        for each in resources:
            self._put_resource(each)
        return self

    def _put(self, found: Found) -> None:
        if isinstance(found, Unreadable):
            self.unreadable[found.id.name] = found
        elif pool_type_of(found) != self.pool_type:
            return
        elif isinstance(found, ResourceObject):
            self._put_resource(found)
        elif isinstance(found, TicketObject):
            self.tickets[found.id.name] = found
            if self._ranks is not None:
                insort(self._ranks, self.rank(found))
        elif isinstance(found, PoolObject):
            self.pool, self._ranks = found, None

    def _put_resource(self, found: ResourceObject) -> None:
        self.resources[found.id.name] = found
        self._by_name[found.name] = found
        self._count(found, 1)

    def _count(self, resource: ResourceObject, one: int) -> None:
        for ticket in resource.had_by:
            self._had[ticket] += one
            if not self._had[ticket]:
                del self._had[ticket]
        if resource.member.takes_holders:
            for want in self._usable:
                if want.could_use(resource.name, resource.member.properties):
                    self._usable[want] += one


def pool_type_of(found: Found) -> str | None:
    """Return the type of the pool that an object is in, or is; None for none."""
    if isinstance(found, ResourceObject):
        return found.member.pool
    if isinstance(found, TicketObject):
        return found.pool
    return found.type if isinstance(found, PoolObject) else None


def views_of(items: Iterable[Found], version: int) -> list[PoolView]:
    """Return what a list of several pools shows of each pool that has an object, by type."""
    views: dict[str | None, PoolView] = {
        each.type: PoolView(each.type) for each in items if isinstance(each, PoolObject)
    }
    for each in items:
        view = views.get(pool_type_of(each))
        if view is not None:
            view.put(each)
    for view in views.values():
        view.version = version
    return sorted(views.values(), key=lambda each: each.pool_type)
