"""What happened in each pool of a backend, put together of its events and of how things stand."""

from __future__ import annotations

import contextlib

from leasectl.backends.kinds import kind_of
from leasectl.engines.event_log import EventLog
from leasectl.engines.facts import Pool
from leasectl.errors import NotFound, StateUnwritable
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.pools.timeline import Timeline, present_of, timelines
from leasectl.state.event import EventFilter
from leasectl.text.naming import is_reserved


def pool_histories(
    service: Service, pool_type: str | None = None, *, log: EventLog | None = None
) -> dict[str, Timeline]:
    """What happened in each pool that is there, and in those that events are kept of, by type.

    Where a backend has no pools of its own, it is what happened to this state directory's handles.

    Args:
        service: On their backend.
        pool_type: Only that pool.
        log: The backend's events, for who wants its remark; None for as they are opened here.

    Raises:
        NotFound: There is no such pool, and no event of one.
        NotSupported: Nobody writes events down there.
    """
    with contextlib.suppress(StateUnwritable):  # a full disk: what is over goes on, then
        release_abandoned(service)
    at = service.clock.wall()
    pools: tuple[Pool, ...] = ()
    missing: NotFound | None = None
    if kind_of(service.backend_url).has_pools:
        try:
            pools = service.pools.pools(pool_type)
        except NotFound as error:
            missing = error
    found = timelines((log or service.events).read(EventFilter(type=pool_type)))
    if missing and not found:
        raise missing
    for pool in pools:
        if is_reserved(pool.type):
            continue
        found.setdefault(pool.type, Timeline()).settle(present_of(pool, at))
    return found
