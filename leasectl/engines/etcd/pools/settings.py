"""Change a pool's settings, and undo what the old ones caused.

One transaction for all of it. Those who wait hear of it and look; and as every claim is guarded by
the settings that it was made by, none comes after it that doesn't heed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    delete,
    end_of,
    put,
    read,
    read_all,
    revision_in,
    unchanged,
    unwritten_since,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.rank import without_ageing
from leasectl.engines.etcd.records import encode_settings, parse_settings
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.state.event import Event

Written = Literal["written", "others there", "disturbed"]


def write_settings(
    gateway: Gateway,
    keys: Keys,
    events: EtcdEvents,
    pool_type: str,
    settings: PoolSettings,
    *,
    seen: PoolSettings | None,
    tell: Callable[[PoolSettings], Event],
) -> Written:
    """Write settings, if nobody disturbs it.

    Who has risen by others is put back, and rises by these; what is owed has to be paid at the
    new pace, and nobody has counted that yet.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one.
        pool_type: Of the pool.
        settings: What to write.
        seen: What they are made of; None for whatever there is.
        tell: That, as an event, by what was there before.

    Returns:
        What came of it: they are written; they are others than were seen; or it is to be tried
        again, as anything has changed meanwhile, or there is no such pool.
    """
    reading = gateway.read(
        read(keys.pool(pool_type)),
        read(keys.settings(pool_type)),
        read(keys.pace(pool_type)),
        read_all(keys.tickets(pool_type)),
        read_all(keys.ranks(pool_type), keys_only=True),
    )
    pool, before, pace, tickets, ranks = reading.answers
    if pool.first is None or pool.first.value:
        return "disturbed"
    earlier = NO_SETTINGS if before.first is None else parse_settings(before.first)
    if seen not in (None, earlier):
        return "others there"
    is_ageing_new = earlier.aging_seconds != settings.aging_seconds
    spans = (keys.ranks(pool_type),) if is_ageing_new else ()
    then = [put(keys.settings(pool_type), encode_settings(settings))]
    if is_ageing_new:
        then += without_ageing(keys, pool_type, tickets.items, ranks.items)
    if pace.first is not None:
        owed = put(pace.first.key, pace.first.value)
        then.append(owed if settings.pace_seconds else delete(pace.first.key))
    try:
        outcome = events.commit(
            [
                unchanged(pool.first.key, pool.first.mod_revision),
                unchanged(keys.settings(pool_type), revision_in(before.first)),
                unchanged(keys.pace(pool_type), revision_in(pace.first)),
                *(unwritten_since(span, end_of(span), reading.revision) for span in spans),
            ],
            then,
            [read(keys.settings(pool_type))],
            events=[tell(earlier)],
        )
    except EtcdLeaseGone:  # of somebody who waited
        return "disturbed"
    there = [found.first for found in outcome.answers]
    is_done = outcome.succeeded or (
        outcome.repeated and any(kv and kv.value == encode_settings(settings) for kv in there)
    )
    return "written" if is_done else "disturbed"
