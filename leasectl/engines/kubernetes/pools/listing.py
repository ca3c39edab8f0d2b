"""List pools and their names."""

from __future__ import annotations

from collections.abc import Collection

from leasectl.engines import refusals
from leasectl.engines.kubernetes.objects.names import object_of_pool
from leasectl.engines.kubernetes.objects.objects import PoolObject, ResourceObject
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.errors import NotFound
from leasectl.text.wording import counted


def pool_types(store: Store) -> list[str]:
    """The types of all pools, sorted."""
    found = map(parse_object, store.all("pool").items)
    return sorted(
        each.type for each in found if isinstance(each, PoolObject) and each.state == "open"
    )


def no_pool(store: Store, pool_type: str) -> NotFound:
    """There is no pool of a type that grants: never was, or somebody does something to it.

    Raises:
        NoNamespace: Nor is there the namespace.
    """
    view, name = store.pool(pool_type), object_of_pool(pool_type)
    if view.pool is not None and view.pool.state in ("making", "closing"):
        is_made = view.pool.state == "making"
        why = "yet: it is being made" if is_made else "any more: it is being deleted"
        return NotFound(
            f'no pool "{pool_type}" {why}; if whoever does that was killed, end it with: '
            f"leasectl pool delete {pool_type}"
        )
    raw = store.get(name)
    if raw is not None and not isinstance(parse_object(raw), PoolObject):
        was = f'Lease "{name}" was edited'
    elif raw is None and view.resources:
        was = f'Lease "{name}" was deleted'
    else:
        types = pool_types(store)
        if not types:
            store.check_namespace()
        return refusals.no_pool(pool_type, types)
    there = counted(len(view.resources), "resource")
    return NotFound(f'no pool "{pool_type}", but {there} of it: {was}; see: leasectl doctor')


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
