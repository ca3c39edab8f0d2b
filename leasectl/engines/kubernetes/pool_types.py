"""Which pools there are in a namespace."""

from __future__ import annotations

from leasectl.engines.kubernetes.objects import PoolObject
from leasectl.engines.kubernetes.reading import parse_object
from leasectl.engines.kubernetes.store import Store


def pool_types(store: Store) -> list[str]:
    """The types of all pools, sorted."""
    found = map(parse_object, store.all("pool").items)
    return sorted(each.type for each in found if isinstance(each, PoolObject) and not each.deleting)
