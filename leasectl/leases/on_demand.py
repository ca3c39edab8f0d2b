"""Pools that are made on demand, with one resource each.

Of these people see the work that is done under them, and no pool. Who needs one says so in its
state directory before it is made, and no more once it is gone, or left to others: so what is left
by whoever is killed in between, or can't reach the store any more, its keeper takes away.
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
from leasectl.system.lock_wait import lock_limit
from leasectl.system.process import this_process

if TYPE_CHECKING:
    from leasectl.backends.kinds import Backend
    from leasectl.engines.pool_admin import PoolAdmin

# How long whoever has its result waits for whoever holds the lock of the records, and is stopped.
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
        """Say that this process is going to use it, before it makes it or asks for anything."""
        if self._needed is not None:
            return
        service, state = self._service, self._service.state
        needed = MadePool(service.backend_url, service.settings, self._type, this_process())
        with state.transaction():
            MadePools(state).keep(needed)
            keeper_process.wake(state)
        self._needed = needed

    def make(self) -> bool:
        """Make it, if it isn't there.

        Returns:
            Whether this call has made it; else somebody else has, or is at it.

        Raises:
            NotSupported: The backend has no pools.
        """
        try:
            self._service.pools.create_pool(self._type, [self._type])
        except NotSupported:
            raise
        except (InvalidRequest, NotFound, NotMade):
            return False  # somebody else is at it, or we were so slow that it is over
        return True

    def leave(self) -> None:
        """Have it go, unless others need it; what can't be done now does the keeper.

        Inside `atomic` it is one step with what is done there.
        """
        if self._needed is None:
            return
        service = self._service
        with contextlib.suppress(LeaseError), lock_limit(_LEAVE_SECONDS), service.atomic():
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
    """Remove the pool of a reserved type, with what is known of its round, unless it is in use.

    Args:
        backend: Where it is.
        pool_type: Its type.

    Returns:
        Whether it was there; else it may be that it is just being made, by somebody who has died.

    Raises:
        LeaseError: It couldn't be; to be tried again.
    """
    # As it was before anybody came whom we don't see: what they write is another version.
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
    # Of one that isn't there something may be left. Or somebody has come, or was quicker.
    with contextlib.suppress(NotAllowed, InvalidRequest, NotFound):
        backend.pools.delete_pool(pool_type, force=False)
    return pool is not None


def round_key(pool_type: str) -> str:
    """Under which is kept what has become so far of the work that a pool is made for."""
    return f"once/round/{pool_type.partition('.')[2]}"
