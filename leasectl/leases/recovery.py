"""Give back what dead processes held."""

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
    """Put right what killed processes left, unless the keeper is at it already.

    What can't be put right now is no failure of the command that happened to look; it is
    tried again by the next, and by the keeper. A server may be slow or gone: what lives on one
    is left to the keeper.
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
    """Put right what the dead have left, also beside a keeper, but not what is on a server.

    Raises:
        LeaseError: It couldn't be given back.
    """
    recover(service)
    suspects = map(service.handles.load, ids_of_the_dead(service.state))
    _release_abandoned(service, (each for each in suspects if each and each.state != "released"))
    tidy(service.state)  # also what those waited at, until now on record as theirs


def _release_abandoned(service: Service, handles: Iterable[Handle]) -> None:
    for handle in handles:
        if is_abandoned(service, handle) and not kind_of_handle(handle).remote:
            release(service, left(handle))


def is_abandoned(service: Service, handle: Handle | Watched) -> bool:
    """Tell whether nobody is left who could use what a handle holds or waits for.

    A command that has announced its grant ends a moment later, perhaps just between the reading
    of the record and the look at the process. So what the record says of a dead process
    counts only if it still says so afterwards.
    """
    if is_dead(handle.guard):
        # Its `run` may still be ending what the command has left behind.
        return handle.runner is None or is_dead(handle.runner)
    if not is_dead(handle.waiter):
        return False
    current = service.handles.current(handle.id, handle.acquisition)
    return current is not None and current.waiter == handle.waiter


def left(handle: Handle | Watched) -> ReleaseTarget:
    """Return what is to be released of an abandoned handle."""
    return ReleaseTarget(handle.id, handle.acquisition, by="guard")


def due(service: Service) -> list[ReleaseTarget]:
    """What a keeper would release now: for the dead, and because its time has come.

    Of thousands whose processes seem to live, some may not; the next keeper finds those.
    """
    from leasectl.state.watched import WatchedHandles  # only here: a keeper is mostly there

    some = ids_of_the_dead(service.state, only_watched=True, most_looked_at=_MOST_LOOKED_AT)
    watched = map(WatchedHandles(service.state).one, some)
    abandoned = [left(each) for each in watched if each and is_abandoned(service, each)]
    return abandoned + service.handles.timers.due(service.clock.elapsed())
