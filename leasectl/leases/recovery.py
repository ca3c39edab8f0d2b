"""Release the leases of dead processes and, if no keeper runs, what is due to be released."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.pipes import ids_of_the_dead, tidy
from leasectl.system.process import is_dead

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
            release(service, whole(handle, by="guard"))


def have_all_ended(handle: Handle, is_dead: Callable[[Process | None], bool]) -> bool:
    """Return whether all processes that could use a handle's leases, or wait for them, have ended.

    Its leases are then released. This is the one rule for that: for commands, `doctor` and the
    keeper.

    Args:
        handle: As it is on record.
        is_dead: Returns whether a process has certainly ended; None hasn't.
    """
    if is_dead(handle.guard):
        # Its `run` may still be ending the command's descendants.
        return handle.runner is None or is_dead(handle.runner)
    return is_dead(handle.waiter)


def is_abandoned(service: Service, handle: Handle) -> bool:
    """Return whether `have_all_ended`, by a look at the processes.

    A command that has announced its grant ends a moment later, perhaps just between the reading of
    the record and the look at the process. So what the record says of a dead process counts only if
    it still says so afterwards.
    """
    if not have_all_ended(handle, is_dead):
        return False
    current = service.handles.current(handle.id, handle.acquisition)
    return current is not None and current.waiter == handle.waiter


def due(service: Service) -> list[ReleaseTarget]:
    """Return what a keeper would release now: abandoned handles, and delayed releases that are due.

    It looks at a limited number of processes; the next keeper finds the rest.
    """
    some = ids_of_the_dead(service.state, only_watched=True, most_looked_at=_MOST_LOOKED_AT)
    watched = map(service.handles.load_watched, some)
    abandoned = [
        whole(each, by="guard") for each in watched if each and is_abandoned(service, each)
    ]
    return abandoned + service.handles.timers.due(service.clock.elapsed())
