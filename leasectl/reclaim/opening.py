"""From a service to the ground that a reclaim works on."""

from __future__ import annotations

import contextlib

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.leases.asked import asked_of
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service
from leasectl.reclaim.look import Ground
from leasectl.state.uses import Uses


def open_ground(service: Service, pool_type: str) -> Ground:
    """What a reclaim works on, of a service's chosen backend.

    Raises:
        NotSupported: It has no pools of its own.
    """
    return Ground(
        pool_type,
        service.pools,
        service.notes,
        service.atomic,
        Uses(service.state).last,
        service.clock,
        service.caller.identity,
        lambda: _settle(service),
    )


def _settle(service: Service) -> None:
    """Have somebody answer for the holders here, and take what was freed from their lists."""
    recover(service)
    with contextlib.suppress(LeaseError):  # then their next heartbeats find out
        _find_what_was_taken(service)
    service.losses.unlist()


def _find_what_was_taken(service: Service) -> None:
    """Have the handles here lose what was taken on a server, as they do at once on pools here."""
    ready = (each.target for each in Uses(service.state).all_seen() if each.mark.is_ready)
    for target in {each.handle_id: each for each in ready}.values():
        handle = service.current(target)
        if handle is None or not service.is_here(handle):
            continue
        if kind_of_handle(handle).remote:
            asked_of(service, target)
