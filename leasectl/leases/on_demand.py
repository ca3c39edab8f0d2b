"""Pools that are created on demand, with one resource each.

Users see the work that is done under such a pool, and not the pool. A process that needs one
records that in its state directory before the pool is created, and removes the record when the pool
is gone or others use it. So the keeper can remove a pool whose process was killed, or couldn't
reach the store any more.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leasectl.engines.values import ValueChange
from leasectl.errors import (
    InvalidRequest,
    LeaseError,
    NoNamespace,
    NotAllowed,
    NotFound,
    NotMade,
    NotSupported,
)
from leasectl.leases.service import Service
from leasectl.state import keeper_process
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.process import this_process

if TYPE_CHECKING:
    from leasectl.backends.kinds import Backend
    from leasectl.engines.pool_admin import PoolAdmin

# A process that has its result waits this long for a stopped process that holds the lock.
_LEAVE_SECONDS = 5.0


class PoolOnDemand:
    """The pool of a reserved type, as long as this process needs it.

    Args:
        service: On its backend.
        pool_type: Its type.
    """

    def __init__(self, service: Service, pool_type: str) -> None:
        self._service = service
        self._type = pool_type
        self._needed: MadePool | None = None

    def need(self) -> None:
        """Record that this process needs the pool, before it creates it or asks for a lease."""
        if self._needed is not None:
            return
        service, state = self._service, self._service.state
        needed = MadePool(service.backend_url, service.settings, self._type, this_process())
        with state.transaction():
            MadePools(state).keep(needed)
            keeper_process.wake(state)
        self._needed = needed

    def make(self) -> bool:
        """Create the pool, if it doesn't exist.

        Returns:
            Whether this call has created it; else another process has, or is creating it.

        Raises:
            NotSupported: The backend has no pools.
        """
        try:
            self._service.pools.create_pool(self._type, [self._type])
        except NotSupported:
            raise
        except (InvalidRequest, NotFound, NotMade):
            return False  # another process creates it, or has created and removed it meanwhile
        return True

    def leave(self) -> None:
        """Remove the pool, unless others need it; the keeper does what can't be done now.

        Inside `atomic` it is one step with what is done there.
        """
        if self._needed is None:
            return
        service = self._service
        limit = service.state.lock_limit.within(_LEAVE_SECONDS)
        with contextlib.suppress(LeaseError), limit, service.atomic():
            remove_unused(service.backend, self._type)
            with service.state.transaction():
                MadePools(service.state).forget(self._needed)
        self._needed = None

    def leave_to_keeper(self) -> None:
        """Leave the removal to the keeper, because the store doesn't answer."""
        self._needed = None


def is_needed(pools: PoolAdmin, pool_type: str) -> bool:
    """Return whether the resource of a reserved pool is held or waited for."""
    try:
        (pool,) = pools.pools(pool_type)
    except (NotFound, NoNamespace):
        return False
    return bool(pool.held or pool.queue)


def remove_unused(backend: Backend, pool_type: str) -> bool:
    """Remove the pool of a reserved type and the state of its round, unless it is in use.

    Args:
        backend: Where it is.
        pool_type: Its type.

    Returns:
        Whether it existed; else a process that has died may have been creating it.

    Raises:
        LeaseError: It couldn't be removed; try again.
    """
    # The version from before any process came that we don't see: such a process writes another.
    key = round_key(pool_type)
    found = backend.values.get(key)
    try:
        (pool,) = backend.pools.pools(pool_type)
    except NoNamespace:
        return False
    except NotFound:
        pool = None
    if pool is not None and (pool.held or pool.queue):
        return True
    if found is not None:
        backend.values.change([ValueChange(key, None, found.version)])
    # Parts of a missing pool may be left. Or another process uses it, or has removed it.
    with contextlib.suppress(NotAllowed, InvalidRequest, NotFound):
        backend.pools.delete_pool(pool_type, force=False)
    return pool is not None


def round_key(pool_type: str) -> str:
    """Return the key of the stored round of the work that a pool belongs to."""
    return f"once/round/{pool_type.partition('.')[2]}"
