"""List pools and their names."""

from __future__ import annotations

from collections.abc import Collection

from leasectl.engines import refusals
from leasectl.engines.cluster.objects import PoolObject, Selection
from leasectl.engines.cluster.place import Place
from leasectl.errors import NotFound


def pool_types(place: Place) -> list[str]:
    """The types of all pools, sorted."""
    found = place.objects.list(Selection(kinds=("pool",))).items
    return sorted(
        each.type for each in found if isinstance(each, PoolObject) and each.state == "open"
    )


def no_pool(place: Place, pool_type: str) -> NotFound:
    """Return the error for a type without a pool that grants: there is none, or it isn't open.

    Raises:
        NoNamespace: Nor is there the namespace.
    """
    view = place.pool(pool_type)
    if view.pool is not None and view.pool.state in ("making", "closing"):
        is_made = view.pool.state == "making"
        why = "yet: it is being made" if is_made else "any more: it is being deleted"
        return NotFound(
            f'no pool "{pool_type}" {why}; if whoever does that was killed, end it with: '
            f"leasectl pool delete {pool_type}"
        )
    damaged = place.objects.why_missing(pool_type, len(view.resources))
    if damaged is not None:
        return damaged
    types = pool_types(place)
    if not types:
        place.objects.check()
    return refusals.no_pool(pool_type, types)


def resource_names(place: Place, begin: str, types: Collection[str]) -> list[str]:
    """Names in pools, sorted.

    Args:
        place: Where they are.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
    """
    found = place.resources(Selection(kinds=("resource",)))
    return sorted(
        each.name
        for each in found
        if each.name.startswith(begin)
        and each.member.pool is not None
        and (not types or each.member.pool in types)
    )
