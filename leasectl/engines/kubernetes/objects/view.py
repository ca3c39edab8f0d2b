"""A pool in memory: a list of its objects, kept up to date by a watch.

A list is of one instant. A watch goes on from there, each event with the resourceVersion of its
write; what is older than the list is in it already, so nothing that was deleted comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.kubernetes.objects.objects import (
    Json,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.kubernetes.objects.reading import identity_of, parse_object


class PoolView:
    """What was seen of a pool; of its objects, those that really are of this type.

    Args:
        pool_type: The type.

    Attributes:
        pool_type: As given.
        version: Of what was seen last: all that was written before is here, as far as it was told.
        pool: The pool itself; None where there is none.
        resources: By the names of their objects.
        tickets: Likewise.
        unreadable: Likewise.
    """

    def __init__(self, pool_type: str) -> None:
        self.pool_type = pool_type
        self.version = 0
        self.pool: PoolObject | None = None
        self.resources: dict[str, ResourceObject] = {}
        self.tickets: dict[str, TicketObject] = {}
        self.unreadable: dict[str, Unreadable] = {}

    @property
    def is_there(self) -> bool:
        """Tell whether there is a pool that grants."""
        return self.pool is not None and self.pool.state == "open"

    @property
    def is_shown(self) -> bool:
        """Tell whether people see it: also one that is closing, while something of it is held.

        It grants again as soon as whoever closes it sees that, unless that is by force.
        """
        return self.is_there or (
            self.is_closing and any(each.claim for each in self.resources.values())
        )

    @property
    def is_closing(self) -> bool:
        """Tell whether somebody deletes it, unless it turns out to be used."""
        return self.pool is not None and self.pool.state == "closing"

    def copy(self) -> PoolView:
        """The same, to be looked at while this one changes."""
        copy = PoolView(self.pool_type)
        copy.version, copy.pool = self.version, self.pool
        copy.resources = dict(self.resources)
        copy.tickets = dict(self.tickets)
        copy.unreadable = dict(self.unreadable)
        return copy

    def find(self, name: str) -> ResourceObject | TicketObject | Unreadable | PoolObject | None:
        """What was seen of an object."""
        if self.pool is not None and self.pool.id.name == name:
            return self.pool
        return self.resources.get(name) or self.tickets.get(name) or self.unreadable.get(name)

    def fill(self, items: Iterable[Json], version: int) -> PoolView:
        """Have it be what a list has shown."""
        self.pool = None
        for found in (self.resources, self.tickets, self.unreadable):
            found.clear()
        for raw in items:
            self._put(raw)
        self.version = version
        return self

    def apply(self, raw: Json, *, is_deleted: bool) -> bool:
        """Take note of what a watch tells; returns whether that is new."""
        id_ = identity_of(raw)
        if id_.version <= self.version:
            return False
        self.version = id_.version
        before = self.find(id_.name)
        if before is not None and before.id.version > id_.version:
            return False  # what was written here since then
        self._drop(id_.name)
        if not is_deleted:
            self._put(raw)
        return True

    def put(self, raw: Json) -> None:
        """Take note of what was written here: the answer to a request, older than nothing seen.

        It doesn't say that anything else is so, so the version stays.
        """
        id_ = identity_of(raw)
        before = self.find(id_.name)
        if before is None or before.id.version < id_.version:
            self._drop(id_.name)
            self._put(raw)

    def _drop(self, name: str) -> None:
        for found in (self.resources, self.tickets, self.unreadable):
            found.pop(name, None)
        if self.pool is not None and self.pool.id.name == name:
            self.pool = None

    def _put(self, raw: Json) -> None:
        found = parse_object(raw)
        if isinstance(found, ResourceObject) and found.member.pool == self.pool_type:
            self.resources[found.id.name] = found
        elif isinstance(found, TicketObject) and found.pool == self.pool_type:
            self.tickets[found.id.name] = found
        elif isinstance(found, PoolObject) and found.type == self.pool_type:
            self.pool = found
        elif isinstance(found, Unreadable):
            self.unreadable[found.id.name] = found
