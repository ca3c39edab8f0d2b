"""Whether a pool in etcd could meet a request: as it arrives; and if not, why.

Who waits already sees with what it reads anyway that its request can't be met. Only then it asks
why, which takes a look at all that is in the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import count, read
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import check_there
from leasectl.engines.etcd.records import check_count
from leasectl.errors import BackendUnreachable
from leasectl.model import Request

if TYPE_CHECKING:
    from leasectl.engines.possible import Unmet


def check_possible(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> None:
    """Refuse what the pool of a request can't meet as it is.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Whose bucket is read as well.
        request: What is asked for.

    Raises:
        NotFound, InvalidRequest: It can't.
        BackendUnreachable: Nobody can tell; nothing was asked for.
    """
    check_count(request)
    try:
        _check(gateway, keys, events, request)
    except BackendUnreachable as error:
        error.asked = False
        raise


def why_unmet(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> Unmet | None:
    """Why the pool of a request can't meet it; None if it could.

    Raises:
        NotFound: There is no such pool.
    """
    from leasectl.engines.etcd.members.stock import parse_stock, stock_reads
    from leasectl.engines.possible import unmet

    pool, now, *found = gateway.read(
        read(keys.pool(request.type)), events.read_now(), *stock_reads(keys, request.type)
    ).answers
    events.note_now(now.first)
    check_there(gateway, keys, request.type, pool.first)
    return unmet(request, parse_stock(request.type, found).members.values())


def _check(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> None:
    if not request.where and _is_easily_met(gateway, keys, events, request):
        return
    unmet = why_unmet(gateway, keys, events, request)
    if unmet is not None:
        raise unmet.refusal()


def _is_easily_met(gateway: Gateway, keys: Keys, events: EtcdEvents, request: Request) -> bool:
    """Tell whether it could be met without a look at all that there is, as most could."""
    named = () if request.name is None else (read(keys.resource(request.type, request.name)),)
    pool, resources, closed, now, *found = gateway.read(
        read(keys.pool(request.type)),
        count(keys.resources(request.type)),
        count(keys.all_closed(request.type)),
        events.read_now(),
        *named,
    ).answers
    events.note_now(now.first)
    check_there(gateway, keys, request.type, pool.first)
    if found and (found[0].first is None or closed.count):
        return False
    return request.count <= resources.count - closed.count
