"""What a ticket in etcd waits for, and the watches that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.keys import Keys


class Watched(NamedTuple):
    """What to listen for.

    Args:
        key: The key, or the prefix when it ends in "/".
        puts: Whether somebody's writing it is of interest.
        deletes: Whether its end is.
        has_sequel: Whether another watch mostly tells of the same transaction, and tells more.
    """

    key: str
    puts: bool = False
    deletes: bool = False
    has_sequel: bool = False

    @property
    def is_prefix(self) -> bool:
        return self.key.endswith("/")

    def covers(self, other: Watched) -> bool:
        """Tell whether who listens for this hears all that who listens for the other does."""
        if (other.puts and not self.puts) or (other.deletes and not self.deletes):
            return False
        return self.key == other.key or (self.is_prefix and other.key.startswith(self.key))


class WatchTarget(NamedTuple):
    """What a waiter waits for, as seen at a revision: only what came later is news.

    Args:
        watched: Nothing but that.
        shared: What covers all that any waiter of the same pool may ever wait for.
        revision: Etcd's.
    """

    watched: tuple[Watched, ...]
    shared: tuple[Watched, ...]
    revision: int


def behind(
    keys: Keys, pool_type: str, etcd_lease_id: int, predecessor: str, revision: int
) -> WatchTarget:
    """What a ticket waits for that isn't at the head: the end of its predecessor's, or its own."""
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    before = Watched(predecessor, deletes=True)
    return WatchTarget((own, before), _shared(keys, pool_type), revision)


def at_the_head(
    keys: Keys, pool_type: str, etcd_lease_id: int, revision: int, *, named: Sequence[str] = ()
) -> WatchTarget:
    """What a ticket waits for when it is its turn: resources, or its own end.

    Or that of a better ticket that waits for a name each: those are what it can't have.
    """
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    tickets, *changes = _shared(keys, pool_type)
    others = (Watched(key, deletes=True) for key in named)
    return WatchTarget((own, *others, *changes), (tickets, *changes), revision)


def _shared(keys: Keys, pool_type: str) -> tuple[Watched, ...]:
    return (
        Watched(keys.tickets(pool_type), deletes=True),
        Watched(keys.frees(pool_type), puts=True),
        Watched(keys.alives(pool_type), deletes=True, has_sequel=True),
        Watched(keys.pool(pool_type), puts=True, deletes=True),
    )
