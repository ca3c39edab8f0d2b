"""From a service to the ground that a reclaim works on."""

from __future__ import annotations

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
    service.losses.unlist()
