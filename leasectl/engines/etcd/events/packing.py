"""Makes old events dense: those of a bucket that is written to no more become one value.

A hundred thousand keys take etcd's gateway seconds to tell; a hundred packs take it none. A pack
replaces its bucket's keys in one transaction, so whoever reads a bucket, keys and pack at once,
finds each of its events once, whoever packs at the same time or is killed meanwhile. It is attached
to the bucket's etcd lease, and goes with it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence

from leasectl.engines.etcd.events.buckets import Bucket, packed_numbers, readable_buckets
from leasectl.engines.etcd.events.packs import encode_pack
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    count,
    delete_all,
    end_of,
    none_below,
    put,
    read_all,
    unchanged,
    unwritten_since,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock

# Of one bucket, at most. What comes of more may be too long for one request (1.5 MiB); only before
# there were packs did buckets get that large, and only with LEASECTL_KEEP_EVENTS above 320,000.
_MOST_EVENTS = 10_000
_LONGEST_PACK = 1 << 20
# It is nobody's business that waits: where etcd takes its time, another process does it.
_SECONDS = 1.0


def pack_a_bucket(
    gateway: Gateway,
    keys: Keys,
    *,
    clock: Clock,
    choose: Callable[[Sequence[Bucket]], Bucket] = secrets.choice,
) -> None:
    """Pack one of the buckets that can be packed, if there is any and etcd is quick to answer.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clock: Where times come from.
        choose: Chooses one. By chance, so that several who do this at once seldom choose the same,
            and none that can't be packed keeps others from it.
    """
    until = clock.elapsed() + _SECONDS
    with contextlib.suppress(LeaseError, EtcdLeaseGone), gateway.limited(until):
        found = _unpacked(gateway, keys)
        if found and clock.elapsed() < until:
            bucket = choose(found)
            events = keys.events_in(bucket.name)
            (number,) = gateway.read(count(events)).answers
            if number.count <= _MOST_EVENTS and clock.elapsed() < until:
                _pack(gateway, keys, bucket, events)


def _unpacked(gateway: Gateway, keys: Keys) -> list[Bucket]:
    """The buckets that are written to no more, which are all but the last, and aren't packed."""
    listed, packs = gateway.read(
        read_all(keys.buckets()), read_all(keys.packs(), keys_only=True)
    ).answers
    packed = packed_numbers(packs)
    return [
        bucket
        for bucket in readable_buckets(listed)[:-1]
        if bucket.is_usable and bucket.name not in packed
    ]


def _pack(gateway: Gateway, keys: Keys, bucket: Bucket, events: str) -> None:
    """Put one value in the place of a bucket's keys; an empty one where there are none."""
    outcome = gateway.read(read_all(events))
    items = outcome.answers[0].items
    pack = encode_pack(items)
    if len(pack) > _LONGEST_PACK:
        return
    gateway.commit(
        [
            none_below(keys.packs_of(bucket.name)),
            unwritten_since(events, end_of(events), outcome.revision),
            unchanged(keys.bucket(bucket.name), bucket.mod_revision),
        ],
        [
            put(keys.pack(bucket.name, len(items)), pack, etcd_lease_id=bucket.etcd_lease_id),
            delete_all(events),
        ],
    )
