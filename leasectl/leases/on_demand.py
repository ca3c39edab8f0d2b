"""Pools that are made when somebody needs them, and go when nobody does: of one resource each.

Of these people see the work that is done under them, and no pool.
"""

from __future__ import annotations

import contextlib

from leasectl.errors import InvalidRequest, LeaseError, NotSupported
from leasectl.leases.service import Service


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
    except InvalidRequest:
        return False
    return True


def remove_unused(service: Service, pool_type: str) -> None:
    """Remove the pool of a reserved type, unless somebody holds it or waits in it.

    What can't be done now does whoever uses it next, or `doctor`.
    """
    with contextlib.suppress(LeaseError):
        service.pools.delete_pool(pool_type, force=False)
