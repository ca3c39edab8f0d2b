"""List pools and their names."""

from __future__ import annotations

from collections.abc import Collection

from leasectl.engines import refusals
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue, read_all
from leasectl.engines.etcd.key_values import name_in, type_in
from leasectl.engines.etcd.keys import Keys
from leasectl.errors import NotFound


def pool_types(gateway: Gateway, keys: Keys) -> list[str]:
    """The types of all pools there are, sorted."""
    (found,) = gateway.read(read_all(keys.pools())).answers
    return [name_in(kv) for kv in found.items if not kv.value]


def resource_names(
    gateway: Gateway, keys: Keys, begin: str, types: Collection[str], *, most: int
) -> list[str]:
    """Names in pools, sorted.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
        most: How many are read, of those that begin so, the first.
    """
    (found,) = gateway.read(read_all(keys.name(begin), limit=most)).answers
    return [name_in(kv) for kv in found.items if not types or type_in(kv) in types]


def check_there(gateway: Gateway, keys: Keys, pool_type: str, pool: KeyValue | None) -> KeyValue:
    """Refuse a pool that isn't there, or is only being made.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        pool_type: Its type.
        pool: Its own key, as it was read.

    Returns:
        That key.

    Raises:
        NotFound: There is no such pool, or not yet.
    """
    if pool is None or pool.value:
        raise no_pool(gateway, keys, pool_type)
    return pool


def no_pool(gateway: Gateway, keys: Keys, pool_type: str) -> NotFound:
    """That there is no pool of a type; which there are is asked for that."""
    return refusals.no_pool(pool_type, pool_types(gateway, keys))
