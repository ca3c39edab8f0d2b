"""Encode the view model of pools as JSON, and parse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

from leasectl.backends.kinds import kind_of
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Cordon, Properties
from leasectl.errors import CorruptState, InvalidRequest, LeaseError
from leasectl.leases.marks import MarkState
from leasectl.leases.properties import properties_of
from leasectl.leases.service import Service
from leasectl.model import Handle, Labels, Lease
from leasectl.pools.circular_waits import circular_waits
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.overview import (
    NOTHING_SAID,
    GuardPlace,
    Holder,
    Overview,
    Renewer,
    ShownLease,
    ShownMark,
    ShownMembership,
    ShownPool,
    ShownResource,
    ShownWaiter,
    parse_holder,
    why_unavailable,
    work_of_pool,
)
from leasectl.state.rows import without_keys
from leasectl.state.uses import Uses
from leasectl.system.clock import earliest, rfc3339
from leasectl.text.properties import (
    MALFORMED,
    parse_conditions,
    read_each,
    read_integer,
    read_name,
    read_number,
    read_optional,
    read_record,
    read_text,
    read_time,
    reason_of,
    written,
)
from leasectl.text.wording import followed_by, printable

_LONGEST_SHOWN = 2000
AsList = Callable[[Iterable[object]], Iterable[object]]


def _pool_counts(pool: ShownPool) -> dict[str, int]:
    """The numbers of a pool; unavailable resources have no holder, but aren't granted."""
    return {
        "capacity": pool.capacity,
        "free": pool.free,
        "held": pool.held,
        "waiting": len(pool.queue),
        "unavailable": pool.unavailable,
    }


def _pool_grants(pool: ShownPool) -> dict[str, float | None]:
    """How a pool grants."""
    return {
        **pool.settings._asdict(),
        "next_grant_in_seconds": round(pool.next_grant_in_seconds, 3),
        "default_grace_seconds": pool.default_grace_seconds,
    }


def encode_overview(overview: Overview, *, as_list: AsList = list) -> dict[str, object]:
    """Encode an overview as JSON; `parse_overview` reads it back.

    Args:
        overview: What is to be shown.
        as_list: Makes the lists that may be long; ``iter`` if they are written as they are made.
    """
    rows = overview.rows

    def pool_fields(pool: ShownPool) -> dict[str, object]:
        return {
            "type": pool.type,
            **_pool_counts(pool),
            **_pool_grants(pool),
            "resources": as_list(map(_resource_fields, rows.resources(pool))),
            "queue": as_list(map(_waiter_fields, rows.queue(pool))),
        }

    def work_fields(pool: ShownPool) -> dict[str, object]:
        key, inputs = work_of_pool(pool)
        return {"work": key, "inputs": inputs, **pool_fields(pool)}

    return {
        "backend": overview.backend,
        "at": rfc3339(overview.at),
        "pools": list(map(pool_fields, overview.pools)),
        "works": list(map(work_fields, overview.works)),
        "circular_waits": [each._asdict() for each in circular_waits(overview)],
    }


def encode_pools(backend: str, pools: Sequence[ShownPool]) -> dict[str, object]:
    """Encode pools without holders and waiters, as the JSON of ``leasectl pool list``."""
    fields = [
        {
            "type": pool.type,
            **_pool_counts(pool),
            **_pool_grants(pool),
            "properties": {
                each.name: dict(each.properties) for each in pool.resources if each.properties
            },
        }
        for pool in pools
    ]
    return {"backend": backend, "pools": fields}


def encode_handle(service: Service, handle: Handle) -> dict[str, object]:
    """Encode all that is known of a handle; warn if its server doesn't tell the properties."""
    in_use = Uses(service.state).in_use(handle)
    properties: Mapping[str, Properties] | None = None
    try:
        properties = properties_of(service, handle)
    except LeaseError as error:
        service.warn(followed_by(error, '"properties" are null'))
    releases = service.handles.timers.of_names()
    booted_at = service.clock.wall() - service.clock.elapsed()

    def when(due: float | None) -> str | None:
        return None if due is None else rfc3339(booted_at + due)

    request, release_at = handle.request, when(handle.release_at)
    guard_pid = handle.guard.pid if handle.guard else None
    return {
        "handle": service.state.names_path(handle.id),
        "backend": handle.backend,
        "type": handle.type,
        "types": request.types,
        "each": request.needs_all,
        "count": request.count,
        "scope": request.scope,
        "priority": request.priority,
        "where": written(request.where),
        "on_reclaim": request.on_reclaim,
        "state": handle.state,
        "acquisition": handle.acquisition,
        "release_at": release_at,
        "release_time": release_at,  # as `status` called it, for programs of before
        "leases": [
            {
                "name": lease.name,
                **lease_spec(lease),
                "guard_pid": guard_pid,
                "release_at": when(
                    earliest(handle.release_at, releases.get((handle.id, lease.name)))
                ),
                "labels": dict(without_keys(lease.labels)),
                "properties": None if properties is None else dict(properties[lease.name]),
                "in_use": lease.name in in_use,
            }
            for lease in handle.leases
        ],
    }


def _resource_fields(resource: ShownResource) -> dict[str, object]:
    # A copy, which of thousands takes less long than to make each grow.
    fields = _FREE_FIELDS.copy()
    fields["name"] = resource.name
    if resource.lease is not None:
        fields.update(_lease_fields(resource.lease))
    if resource.properties:
        fields["properties"] = dict(resource.properties)
    if resource.membership is not NOTHING_SAID:
        fields["membership"] = _membership_fields(resource.membership)
        fields["state"] = why_unavailable(resource) or fields["state"]
    if resource.mark is not None:
        fields["mark"] = resource.mark._asdict()
    if resource.in_use:
        fields["in_use"] = True
    return fields


def _membership_fields(membership: ShownMembership) -> dict[str, object]:
    fields = membership._replace(cordon=None)._asdict()
    found = {key: round(n, 3) if isinstance(n, float) else n for key, n in fields.items()}
    return {**found, "cordon": cordon_fields(membership.cordon)}


def cordon_fields(cordon: Cordon | None) -> dict[str, object] | None:
    """Encode a cordon as JSON."""
    return None if cordon is None else {**cordon._asdict(), "at": rfc3339(cordon.at)}


def lease_spec(lease: Lease) -> dict[str, object]:
    """A lease in the words of the Kubernetes LeaseSpec, and what orders it among others."""
    return {
        "holder_identity": lease.holder_identity,
        "acquire_time": rfc3339(lease.acquire_time),
        "renew_time": rfc3339(lease.renew_time),
        "lease_duration_seconds": lease.lease_duration_seconds,
        "lease_transitions": lease.lease_transitions,
        "fence": lease.fence or None,
        "grant": lease.grant or None,
        "ticket": lease.ticket or None,
    }


def _lease_fields(shown: ShownLease) -> dict[str, object]:
    release_time = rfc3339(shown.release_time)
    held = "unconfirmed" if shown.unconfirmed else "held"
    return {
        "state": held if shown.ended is None else "ended",
        **lease_spec(shown.lease),
        "guard_pid": shown.guard_pid,
        "host": shown.holder.host or None,
        "expires_in_seconds": shown.expires_in_seconds,
        **_holder_fields(shown.holder),
        "pid": shown.pid,
        "guard": shown.guard,
        "release_time": release_time,
        "renewed_by": shown.renewed_by,
        "labels": dict(shown.lease.labels),
        "ended": shown.ended,
        "release_at": release_time,  # the one word for it; the other is for programs of before
    }


def _holder_fields(holder: Holder) -> dict[str, object]:
    return {
        "handle": holder.handle,
        "job": holder.job,
        "build": holder.build,
        "owner": holder.owner,
    }


_NO_LEASE = ShownLease(Lease("", 0, 0, 0, "", 0.0, 0.0, None, 0), parse_holder(""))
# The fields of a free resource without membership, properties or mark.
_FREE_FIELDS: dict[str, object] = {
    "name": "",
    **dict.fromkeys(_lease_fields(_NO_LEASE)),
    # Whether anybody may have it is told apart: older programs know this word.
    "state": "free",
    "properties": {},
    "membership": _membership_fields(NOTHING_SAID),
    "mark": None,
    "in_use": False,
}


def _waiter_fields(waiter: ShownWaiter) -> dict[str, object]:
    return {
        "ticket": waiter.ticket,
        "holder_identity": waiter.holder.identity,
        "count": waiter.count,
        "since": rfc3339(waiter.since),
        "position": waiter.position,
        "host": waiter.holder.host or None,
        **_holder_fields(waiter.holder),
        "pid": waiter.pid,
        "name": waiter.name,
        "labels": dict(waiter.labels),
        "suspended": waiter.suspended,
        "priority": waiter.priority,
        "effective_priority": waiter.effective_priority,
        "where": written(waiter.where),
    }


def encode_counts(counts: Counts) -> dict[str, object]:
    """Counts as JSON has them; `parse_counts` reads them back."""
    pools = [
        {
            "type": each.type,
            "capacity": each.capacity,
            "free": each.free,
            "held": each.held,
            "waiting": each.waiting,
            "states": dict(each.states),
            "owners": [{**own._asdict(), "since": rfc3339(own.since)} for own in each.owners],
            "lost": [{**loss._asdict(), "at": rfc3339(loss.at)} for loss in each.lost],
        }
        for each in counts.types
    ]
    return {"backend": counts.backend, "at": rfc3339(counts.at), "pools": pools}


def are_counts(fields: Any) -> bool:
    """Tell whether what a server has told of its pools is what another one has counted."""
    try:
        return kind_of(read_text(fields["backend"])).counts_types
    except (*MALFORMED, InvalidRequest):
        return False


def parse_overview(fields: Any, *, backend: str) -> Overview:
    """Read what `encode_overview` wrote, perhaps in a newer version; text is made safe to show.

    Args:
        fields: What JSON held.
        backend: The URL that it was asked of here.

    Raises:
        CorruptState: It isn't what any version has written.
    """
    with _refusing_malformed(backend):
        works = fields.get("works") or ()
        return Overview(
            backend,
            read_time(fields["at"]),
            read_each(_pool, fields["pools"]),
            read_each(_pool, works),
        )


def parse_counts(fields: Any, *, backend: str) -> Counts:
    """Read what `encode_counts` wrote; as `parse_overview`."""
    with _refusing_malformed(backend):
        return Counts(
            backend,
            read_time(fields["at"]),
            read_each(partial(read_record, CountedType, _COUNTED), fields["pools"]),
        )


@contextmanager
def _refusing_malformed(backend: str) -> Iterator[None]:
    try:
        yield
    except (*MALFORMED, InvalidRequest) as error:
        said = printable(reason_of(error), longest=80)
        raise CorruptState(
            f"{backend}: what it tells of its pools can't be read: {said}"
        ) from error


_Read = Callable[[Any], Any]


def _shown(value: object) -> str:
    """A text, made safe to show."""
    return printable(read_text(value), longest=_LONGEST_SHOWN)


def _number(value: Any) -> int:
    """A number that counts from 1; 0 for null."""
    return read_integer(value or 0)


def _labels(value: Any) -> Labels:
    return tuple((_shown(key), _shown(text)) for key, text in value.items())


def _properties(value: Any) -> Properties:
    return tuple(sorted((read_name(key), _shown(text)) for key, text in value.items()))


def _word(kinds: object, other: str | None) -> _Read:
    """Read one of the words of a type; another one, which a newer version may know, is `other`."""
    known = get_args(kinds)
    return lambda word: word if word in known else other


_SETTINGS = {"pace_seconds": read_number, "burst": read_integer, "aging_seconds": read_number}
_POOL: dict[str, _Read] = {
    "settings": partial(read_record, PoolSettings, _SETTINGS),
    "next_grant_in_seconds": read_number,
    "default_grace_seconds": read_number,
}
_MARK = {"state": _word(MarkState, "marked"), "asked_by": _shown}
_CORDON: dict[str, _Read] = {"by": _shown, "at": read_time, "reason": _shown}
_MEMBERSHIP: dict[str, _Read] = {
    "cordoned": bool,
    "moves_to": read_name,
    "leaves": bool,
    "expected": read_name,
    "by_default": bool,
    "held_back_seconds": read_number,
    "ttl_seconds": read_number,
    "leaves_in_seconds": read_number,
    "pid": read_integer,
    "cordon": partial(read_record, Cordon, _CORDON),
}
_RESOURCE: dict[str, _Read] = {
    "membership": partial(read_record, ShownMembership, _MEMBERSHIP),
    "properties": _properties,
    "mark": partial(read_record, ShownMark, _MARK),
    "in_use": bool,
}
_SPEC: dict[str, _Read] = {
    "name": read_name,
    "fence": _number,
    "ticket": _number,
    "grant": _number,
    "holder_identity": _shown,
    "acquire_time": read_time,
    "renew_time": read_time,
    "lease_duration_seconds": partial(read_optional, read_number),
    "lease_transitions": read_integer,
    "labels": _labels,
}
_LEASE: dict[str, _Read] = {
    "guard": _word(GuardPlace, "unknown"),
    "guard_pid": read_integer,
    "pid": read_integer,
    "release_time": read_time,
    "expires_in_seconds": read_number,
    "renewed_by": _word(Renewer, None),
    "ended": _shown,
}
_WAITER: dict[str, _Read] = {
    "count": read_integer,
    "name": partial(read_optional, read_name),
    "since": read_time,
    "pid": read_integer,
    "labels": _labels,
    "suspended": bool,
    "priority": read_integer,
    "effective_priority": read_integer,
    "where": lambda texts: parse_conditions(read_each(_shown, texts)),
}
_OWNER: dict[str, _Read] = {
    "owner": _shown,
    "held": read_integer,
    "handle": read_name,
    "names": partial(read_each, read_name),
    "since": read_time,
}
_LOSS = {"name": read_name, "holder_identity": _shown, "at": read_time}
_COUNTED: dict[str, _Read] = {
    "type": read_name,
    "free": read_integer,
    "states": lambda found: {_shown(state): read_integer(n) for state, n in found.items()},
    "owners": partial(read_each, partial(read_record, CountedOwner, _OWNER)),
    "waiting": read_integer,
    "lost": partial(read_each, partial(read_record, CountedLoss, _LOSS)),
}


def _pool(fields: Any) -> ShownPool:
    pool: ShownPool = read_record(
        ShownPool,
        _POOL,
        {**fields, "settings": fields},
        read_name(fields["type"]),
        read_each(_resource, fields["resources"]),
        read_each(_waiter, fields["queue"]),
    )
    return pool


def _resource(fields: Any) -> ShownResource:
    lease = None if fields["holder_identity"] is None else _lease(fields)
    resource: ShownResource = read_record(
        ShownResource, _RESOURCE, fields, read_name(fields["name"]), lease
    )
    return resource


def _lease(fields: Any) -> ShownLease:
    lease = read_record(Lease, _SPEC, fields)
    shown: ShownLease = read_record(
        ShownLease,
        _LEASE,
        fields,
        lease,
        parse_holder(lease.holder_identity),
        fields["state"] == "unconfirmed",
    )
    return shown


def _waiter(fields: Any) -> ShownWaiter:
    place = read_integer(fields["position"]), read_integer(fields["ticket"])
    holder = parse_holder(_shown(fields["holder_identity"]))
    waiter: ShownWaiter = read_record(ShownWaiter, _WAITER, fields, *place, holder)
    return waiter
