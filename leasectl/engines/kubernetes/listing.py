"""Which pools there are in a namespace, and which names in them, as far as anybody types them."""

from __future__ import annotations

from collections.abc import Collection

from leasectl.engines.kubernetes.objects import PoolObject, ResourceObject
from leasectl.engines.kubernetes.reading import parse_object
from leasectl.engines.kubernetes.store import Store


def pool_types(store: Store) -> list[str]:
    """The types of all pools, sorted."""
    found = map(parse_object, store.all("pool").items)
    return sorted(each.type for each in found if isinstance(each, PoolObject) and not each.deleting)


def resource_names(store: Store, begin: str, types: Collection[str]) -> list[str]:
    """Names in pools, sorted.

    Args:
        store: Where they are.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
    """
    found = map(parse_object, store.all("resource").items)
    return sorted(
        each.name
        for each in found
        if isinstance(each, ResourceObject)
        and each.name.startswith(begin)
        and each.member.pool is not None
        and (not types or each.member.pool in types)
    )
