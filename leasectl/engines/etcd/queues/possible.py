"""Whether a pool could meet a request, and if not, why.

Who waits already sees with what it reads anyway that its request can't be met. Only then it asks
why, which takes a look at all that is in the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue, count, read
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import check_there
from leasectl.engines.etcd.records import check_count
from leasectl.engines.possible import unmet
from leasectl.errors import BackendUnreachable
from leasectl.model import Request

if TYPE_CHECKING:
    from leasectl.engines.possible import Unmet


class Room(NamedTuple):
    """What there is in a pool, as long as that isn't written anew.

    Args:
        pool: As it was written.
        takers: How many resources there are that take holders.
    """

    pool: KeyValue
    takers: int


def check_possible(
    gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request
) -> Room | None:
    """Refuse what the pool of a request can't meet as it is.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Whose bucket is read as well.
        request: What is asked for.

    Returns:
        What was seen of the pool; None where more had to be looked at.

    Raises:
        NotFound, InvalidRequest: It can't.
        BackendUnreachable: Nobody can tell; nothing was asked for.
    """
    check_count(request)
    try:
        return _check(gateway, keys, events, request)
    except BackendUnreachable as error:
        error.asked = False
        raise


def why_unmet(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> Unmet | None:
    """Why the pool of a request can't meet it; None if it could.

    Raises:
        NotFound: There is no such pool.
    """
    from leasectl.engines.etcd.members.stock import parse_stock, stock_reads

    pool, now, *found = gateway.read(
        read(keys.pool(request.type)), events.read_now(), *stock_reads(keys, request.type)
    ).answers
    events.note_now(now.first)
    check_there(gateway, keys, request.type, pool.first)
    return unmet(request, parse_stock(request.type, found).members.values())


def _check(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> Room | None:
    room = None if request.where else _room(gateway, keys, events, request)
    if room is None or request.count > room.takers:
        unmet = why_unmet(gateway, keys, events, request)
        if unmet is not None:
            raise unmet.refusal()
    return room


def _room(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> Room | None:
    """What there is in its pool; None where that doesn't tell whether it could be met."""
    named = () if request.name is None else (read(keys.resource(request.type, request.name)),)
    pool, resources, closed, now, *found = gateway.read(
        read(keys.pool(request.type)),
        count(keys.resources(request.type)),
        count(keys.all_closed(request.type)),
        events.read_now(),
        *named,
    ).answers
    events.note_now(now.first)
    there = check_there(gateway, keys, request.type, pool.first)
    if found and (found[0].first is None or closed.count):
        return None
    return Room(there, resources.count - closed.count)
