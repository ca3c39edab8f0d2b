"""Release the leases of dead processes and, if no keeper runs, what is due to be released."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget
from leasectl.state import keeper_process
from leasectl.state.pipes import ids_of_the_dead, tidy
from leasectl.system.process import is_dead

if TYPE_CHECKING:
    from leasectl.state.watched import Watched

_MOST_LOOKED_AT = 256


def recover(service: Service) -> None:
    """Release what killed processes left, unless a keeper does it already.

    A failure here is no failure of the command that happened to look: the next command tries again,
    and so does the keeper. Leases on a server are left to the keeper, since a server may be slow or
    gone.
    """
    state, handles = service.state, service.handles
    with contextlib.suppress(LeaseError):
        _release_abandoned(service, handles.unannounced())
        if keeper_process.is_kept(state):
            return
        if not handles.any_watched():
            keeper_process.remove_dead(state)
            return
        with contextlib.suppress(LeaseError):
            for target in due(service):
                if not kind_of_handle(handles.require(target.handle_id)).remote:
                    release(service, target)
        if handles.any_watched():
            keeper_process.ensure(state)


def release_abandoned(service: Service) -> None:
    """Release the leases of dead processes, also beside a keeper, but not those on a server.

    Raises:
        LeaseError: A lease couldn't be given back.
    """
    recover(service)
    suspects = map(service.handles.load, ids_of_the_dead(service.state))
    _release_abandoned(service, (each for each in suspects if each and each.state != "released"))
    tidy(service.state)  # also the pipes of the released waiters


def _release_abandoned(service: Service, handles: Iterable[Handle]) -> None:
    for handle in handles:
        if is_abandoned(service, handle) and not kind_of_handle(handle).remote:
            release(service, left(handle))


def is_abandoned(service: Service, handle: Handle | Watched) -> bool:
    """Return whether all processes that could use a handle's leases, or wait for them, have ended.

    A command that has announced its grant ends a moment later, perhaps just between the reading of
    the record and the look at the process. So what the record says of a dead process counts only if
    it still says so afterwards.
    """
    if is_dead(handle.guard):
        # Its `run` may still be ending the command's descendants.
        return handle.runner is None or is_dead(handle.runner)
    if not is_dead(handle.waiter):
        return False
    current = service.handles.current(handle.id, handle.acquisition)
    return current is not None and current.waiter == handle.waiter


def left(handle: Handle | Watched) -> ReleaseTarget:
    """Return the target that releases an abandoned handle."""
    return ReleaseTarget(handle.id, handle.acquisition, by="guard")


def due(service: Service) -> list[ReleaseTarget]:
    """Return what a keeper would release now: abandoned handles, and delayed releases that are due.

    It looks at a limited number of processes; the next keeper finds the rest.
    """
    from leasectl.state.watched import WatchedHandles  # rarely needed: usually a keeper runs

    some = ids_of_the_dead(service.state, only_watched=True, most_looked_at=_MOST_LOOKED_AT)
    watched = map(WatchedHandles(service.state).one, some)
    abandoned = [left(each) for each in watched if each and is_abandoned(service, each)]
    return abandoned + service.handles.timers.due(service.clock.elapsed())
