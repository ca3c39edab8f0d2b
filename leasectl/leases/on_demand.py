"""Pools that are made when somebody needs them, and go when nobody does: of one resource each.

Of these people see the work that is done under them, and no pool.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leasectl.errors import InvalidRequest, LeaseError, NotFound, NotSupported
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import ReleaseTarget
from leasectl.text.naming import is_reserved

if TYPE_CHECKING:
    from leasectl.engines.pool_admin import PoolAdmin


def make_pool(service: Service, pool_type: str) -> bool:
    """Make the pool of a reserved type, if it isn't there.

    Returns:
        Whether this call has made it; else somebody else has, or is at it.

    Raises:
        NotSupported: The backend has no pools.
    """
    try:
        service.pools.create_pool(pool_type, [pool_type])
    except NotSupported:
        raise
    except (InvalidRequest, NotFound):
        return False  # somebody else is at it, or we were so slow that it is over
    return True


def is_needed(pools: PoolAdmin, pool_type: str) -> bool:
    """Tell whether somebody holds the resource of a reserved type, or waits for it."""
    try:
        (pool,) = pools.pools(pool_type)
    except NotFound:
        return False
    return bool(pool.held or pool.queue)


def remove_unused(pools: PoolAdmin, pool_type: str) -> None:
    """Remove the pool of a reserved type, unless somebody holds it or waits in it.

    What can't be done now does whoever uses it next, or `doctor`. Inside `atomic` it is one step
    with what is done there.
    """
    with contextlib.suppress(LeaseError):
        (pool,) = pools.pools(pool_type)
        if not pool.held and not pool.queue:
            pools.delete_pool(pool_type, force=False)


def release_and_remove(service: Service, target: ReleaseTarget) -> tuple[str, ...]:
    """Release, as `leases.release.release`, and remove the pool if it was made on demand."""
    handle = service.handles.load(target.handle_id)
    names = release(service, target)
    if handle is not None and is_reserved(handle.request.type):
        remove_unused(service.backend_of(handle).pools, handle.request.type)
    return names
