"""What a ticket waits for, and the watches that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys


class Watched(NamedTuple):
    """What to listen for.

    Args:
        key: The key, or the prefix when it ends in "/".
        puts: Whether somebody's writing it is of interest.
        deletes: Whether its end is.
        has_sequel: Whether another watch mostly tells of the same transaction, and tells more.
        is_quiet: Whether it wakes nobody: it is only to be known since when something is so.
    """

    key: str
    puts: bool = False
    deletes: bool = False
    has_sequel: bool = False
    is_quiet: bool = False

    def is_news(self, kv: KeyValue | None, since: int) -> bool:
        """Tell whether it would have told something since a revision at which a key was there.

        Args:
            kv: The key as it is by now; None where it isn't.
            since: The revision.
        """
        return self.deletes if kv is None else kv.mod_revision > since

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
        later: What there is time for: most waits are over before. What the other watches may have
            missed before they began isn't looked at sooner, either.
    """

    watched: tuple[Watched, ...]
    shared: tuple[Watched, ...]
    revision: int
    later: tuple[Watched, ...] = ()

    @property
    def whole(self) -> WatchTarget:
        """The same with all at once."""
        return self._replace(watched=(*self.later, *self.watched), later=())


def behind(
    keys: Keys,
    pool_type: str,
    etcd_lease_id: int,
    predecessor: str,
    revision: int,
    *,
    is_paced: bool = False,
    for_time: bool = False,
    has_time: bool = False,
) -> WatchTarget:
    """What a ticket waits for that isn't at the head: the end of its predecessor's, or its own.

    Or other settings of the pool, by which it may count with more than that one, or other resources
    in it, of which that one may leave it some. Where it is the pool's time alone that the
    predecessor keeps from it, also the end of any other: that may have got what the predecessor
    waits for. Who has time, with many before it, needn't hear of its own end at once.
    """
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    before = Watched(keys.tickets(pool_type) if for_time else predecessor, deletes=True)
    *_, pool = _resources(keys, pool_type)
    settings, grants = _settings(keys, pool_type), _grants(keys, pool_type, is_paced)
    shared = _shared(keys, pool_type, is_paced)
    target = WatchTarget((before, pool, settings, *grants), shared, revision, later=(own,))
    return target if has_time else target.whole


def at_the_head(
    keys: Keys,
    pool_type: str,
    etcd_lease_id: int,
    revision: int,
    *,
    others: Sequence[str] = (),
    is_paced: bool = False,
) -> WatchTarget:
    """What a ticket waits for when it is its turn: resources, or its own end.

    Or that of others, better ones, each of which keeps something from it.
    """
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    betters = (Watched(key, deletes=True) for key in others)
    grants = _grants(keys, pool_type, is_paced)
    changes = (*_resources(keys, pool_type), _settings(keys, pool_type))
    shared = _shared(keys, pool_type, is_paced)
    return WatchTarget((own, *betters, *changes, *grants), shared, revision)


def for_the_pace(
    keys: Keys, pool_type: str, etcd_lease_id: int, revision: int, *, others: Sequence[str] = ()
) -> WatchTarget:
    """What a ticket waits for that could claim if it were time: that nothing is owed, or its end.

    It is woken by nothing that only becomes free.
    """
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    betters = (Watched(key, deletes=True) for key in others)
    *_, pool = _resources(keys, pool_type)
    changes = (pool, _settings(keys, pool_type), _pace(keys, pool_type))
    shared = _shared(keys, pool_type, is_paced=True)
    watched = (own, *betters, *changes, *_grants(keys, pool_type, is_paced=True))
    return WatchTarget(watched, shared, revision)


def until_met(
    keys: Keys, pool_type: str, etcd_lease_id: int, revision: int, *, is_paced: bool = False
) -> WatchTarget:
    """What a ticket waits for whose request can't be met by what is in the pool: other resources.

    Or that some take holders again, or are something else, or its own end. All of that writes the
    pool anew.
    """
    own = Watched(keys.ticket(pool_type, etcd_lease_id), deletes=True)
    frees, _, pool = _resources(keys, pool_type)
    grants = _grants(keys, pool_type, is_paced)
    return WatchTarget((own, frees, pool, *grants), _shared(keys, pool_type, is_paced), revision)


def _shared(keys: Keys, pool_type: str, is_paced: bool) -> tuple[Watched, ...]:
    paced = (_pace(keys, pool_type), *_grants(keys, pool_type, is_paced)) if is_paced else ()
    tickets = Watched(keys.tickets(pool_type), deletes=True)
    return (tickets, *_resources(keys, pool_type), _settings(keys, pool_type), *paced)


def _resources(keys: Keys, pool_type: str) -> tuple[Watched, ...]:
    return (
        Watched(keys.frees(pool_type), puts=True),
        Watched(keys.alives(pool_type), deletes=True, has_sequel=True),
        Watched(keys.pool(pool_type), puts=True, deletes=True),
    )


def _settings(keys: Keys, pool_type: str) -> Watched:
    return Watched(keys.settings(pool_type), puts=True)


def _pace(keys: Keys, pool_type: str) -> Watched:
    return Watched(keys.pace(pool_type), deletes=True)


def _grants(keys: Keys, pool_type: str, is_paced: bool) -> tuple[Watched, ...]:
    """Who has to know since when there was no grant, hears of each."""
    grants = Watched(keys.grants(pool_type), puts=True, is_quiet=True)
    return (grants,) if is_paced else ()
