"""Build the bodies of writes.

Whatever others have written into an object of ours stays, but for ``managedFields``, which are half
of it: an empty entry takes them away, except from what `kubectl apply` has made. A change carries
uid and resourceVersion of what was seen, so that it is refused where that isn't so any more; a name
that isn't there would be made by it without the uid.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from leasectl.engines.facts import PoolSettings
from leasectl.engines.kubernetes.objects import names
from leasectl.engines.kubernetes.objects.objects import (
    BELONGING,
    BY,
    CHANGED,
    CLAIM_LABEL,
    COMING,
    COUNTS_AS,
    EPOCH,
    EXPECT,
    KIND,
    PACE,
    PLACE,
    POOL,
    SETTINGS,
    STATE,
    TICKET,
    TYPE,
    BelongingObject,
    Json,
    PoolObject,
    PoolState,
    TicketObject,
)
from leasectl.engines.membership import Pools
from leasectl.engines.pool_format import FORMAT
from leasectl.model import Claimant
from leasectl.system.clock import rfc3339

Body = dict[str, Any]

API_VERSION = "coordination.k8s.io/v1"
# Where `kubectl apply` has left this, and nothing says to whom the fields of the object belong,
# `kubectl apply --server-side` takes away all that isn't in its file: a claim.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_SPEC_TTL = 2**31 - 1


def micro_time(wall_seconds: float, *, after: str = "") -> str:
    """A time as the API wants it, six digits of a second; another one than that before it.

    Args:
        wall_seconds: Wall clock.
        after: What was written last: a write that changes nothing is none, and renews nothing.
    """
    text = rfc3339(wall_seconds)
    if text == after:
        text = rfc3339(wall_seconds + 0.000_002)
    assert text is not None
    return text


def with_belonging(
    before: BelongingObject | None, pools: Pools, *, pending: Pools | None = None
) -> Body:
    """Where names belong from now on, of which nobody says more, and what is to become of that."""
    new = new_body(names.OBJECT_OF_BELONGING, "belonging")
    body = new if before is None else as_seen(before.raw)
    record = _pools_record(pools)
    if pending is not None:
        record["pending"] = {**_pools_record(pending), "by": os.urandom(8).hex()}
    body["metadata"]["annotations"][BELONGING] = json.dumps(record)
    body["metadata"]["annotations"].pop(EXPECT, None)
    return body


def new_expectations(patterns: Mapping[str, str]) -> Body:
    """Return the object by which a manifest expects names in pools.

    Its only annotation that matters is one that leasectl itself never writes. So applying it again
    keeps the default pool and all other patterns. `Belonging.settle` takes it for a pending change.

    Args:
        patterns: The pool of each pattern.
    """
    body = new_body(names.OBJECT_OF_BELONGING, "belonging")
    body["metadata"]["annotations"][EXPECT] = json.dumps(dict(sorted(patterns.items())))
    return body


def _pools_record(pools: Pools) -> dict[str, Any]:
    return {
        "default": pools.default,
        "grace_seconds": pools.grace_seconds,
        "patterns": dict(pools.patterns),
    }


# Tickets


def new_ticket(
    object_name: str, claimant: Claimant, claim_key: str, *, ttl_seconds: float, wall: float
) -> Body:
    """A ticket that is about to be put.

    Args:
        object_name: Of the new object.
        claimant: Who waits, for what.
        claim_key: Of the claimant, with its state id.
        ttl_seconds: After so long without a renewal it is dead.
        wall: Wall clock, in seconds.
    """
    request = claimant.request
    body = new_body(object_name, "ticket")
    meta = body["metadata"]
    meta["labels"][CLAIM_LABEL] = names.label_of_claim(claim_key)
    put_in_pool(meta, request.type)
    meta["annotations"][TICKET] = json.dumps(
        {
            "key": claim_key,
            "holder": claimant.holder_identity,
            "count": request.count,
            "name": request.name,
            "where": request.where,
            "priority": request.priority,
            "labels": request.labels,
            "pid": claimant.process.pid if claimant.process else None,
            "process": claimant.process.encode() if claimant.process else None,
            "ttl": ttl_seconds,
        }
    )
    now = micro_time(wall)
    body["spec"] = {
        "holderIdentity": claimant.holder_identity,
        "leaseDurationSeconds": whole_seconds(ttl_seconds),
        "acquireTime": now,
        "renewTime": now,
    }
    return body


def renewed_ticket(ticket: TicketObject, *, wall: float, counts_as: int) -> Body:
    """A ticket whose waiter lives; its place is written down, as the object doesn't show it now."""
    body = as_seen(ticket.raw)
    annotations, spec = body["metadata"]["annotations"], body["spec"]
    annotations[PLACE] = str(ticket.place)
    if counts_as == ticket.priority:
        annotations.pop(COUNTS_AS, None)
    else:
        annotations[COUNTS_AS] = str(counts_as)
    spec["renewTime"] = micro_time(wall, after=str(spec.get("renewTime")))
    return body


# Pools


def new_pool(
    pool_type: str,
    settings: PoolSettings,
    *,
    state: PoolState = "open",
    word: str = "",
    floor: int = 0,
) -> Body:
    """A pool with nothing in it; it is there at once, unless it is still being made.

    Args:
        pool_type, settings: Of the pool.
        state, word: As `PoolObject` has them.
        floor: Its fences are above that resourceVersion; 0 where the cluster was never restored.
    """
    body = new_body(names.object_of_pool(pool_type), "pool")
    put_in_pool(body["metadata"], pool_type)
    body["metadata"]["annotations"][SETTINGS] = _settings_record(settings)
    if floor:
        body["metadata"]["annotations"][EPOCH] = json.dumps(["", floor])
    return _with_state(body, state, word)


def _settings_record(settings: PoolSettings) -> str:
    return json.dumps({"format": FORMAT, **settings._asdict()})


def with_settings(pool: PoolObject, settings: PoolSettings) -> Body:
    """A pool that grants as these say."""
    body = as_seen(pool.raw)
    body["metadata"]["annotations"][SETTINGS] = _settings_record(settings)
    return body


def with_grant(pool: PoolObject, level: float, grant: str) -> Body:
    """A pool whose pace has let one through.

    Args:
        pool: As it was seen.
        level: What its grants owe the pace then.
        grant: What tells that one from all others.
    """
    body = as_seen(pool.raw)
    body["metadata"]["annotations"][PACE] = json.dumps([level, grant])
    return body


def changed(pool: PoolObject) -> Body:
    """A pool by which whoever is far behind in it hears that it may meet less."""
    body = as_seen(pool.raw)
    body["metadata"]["annotations"][CHANGED] = os.urandom(4).hex()
    return body


def in_state(pool: PoolObject, state: PoolState, word: str = "") -> Body:
    """A pool to which somebody does something, or is done with it.

    Args:
        pool: As it was seen.
        state: What that is.
        word: Of who has begun it.
    """
    return _with_state(as_seen(pool.raw), state, word)


def with_coming(pool: PoolObject) -> Body:
    """A pool to which names may be to move; whoever waits in it hears of that."""
    body = changed(pool)
    body["metadata"]["annotations"][COMING] = "true"
    return body


def with_epoch(seen: PoolObject | BelongingObject, epoch: str, floor: int) -> Body:
    """A pool, or what is beside pools, of a cluster that was found to be a restored one.

    Args:
        seen: As it was seen.
        epoch: What tells that one from all others.
        floor: The largest resourceVersion that was seen before.
    """
    body = as_seen(seen.raw)
    body["metadata"]["annotations"][EPOCH] = json.dumps([epoch, max(floor, seen.floor)])
    return body


def _with_state(body: Body, state: PoolState, word: str) -> Body:
    notes = body["metadata"]["annotations"]
    notes.pop(STATE, None)
    if state != "open":
        notes[STATE] = json.dumps([state, word])
    return body


# Of all


def new_body(object_name: str, kind: str) -> Body:
    """An object of ours, with nothing in it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": {
            "name": object_name,
            "labels": {KIND: kind},
            # By which its maker knows it again, if the answer is lost.
            "annotations": {BY: os.urandom(8).hex()},
        },
        "spec": {},
    }


def as_seen(raw: Json) -> Body:
    """A copy that may be changed, at the depth at which that is done here."""
    meta = dict(raw.get("metadata") or {})
    meta["labels"] = dict(meta.get("labels") or {})
    meta["annotations"] = dict(meta.get("annotations") or {})
    if not (_APPLIED in meta["annotations"] and meta.get("managedFields")):
        meta["annotations"].pop(_APPLIED, None)
        meta["managedFields"] = [{}]
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": meta,
        "spec": dict(raw.get("spec") or {}),
    }


def put_in_pool(meta: Mapping[str, Any], pool_type: str | None) -> None:
    """Have an object be found as one of a pool, or of none."""
    meta["annotations"].pop(TYPE, None)
    meta["labels"].pop(POOL, None)
    if pool_type is not None:
        meta["annotations"][TYPE] = pool_type
        meta["labels"][POOL] = names.label_of_type(pool_type)


def whole_seconds(seconds: float) -> int:
    """A duration as the API has it: whole seconds, never less than is meant."""
    return min(max(1, math.ceil(seconds)), _LONGEST_SPEC_TTL)
