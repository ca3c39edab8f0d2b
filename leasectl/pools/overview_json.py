"""Encode the view model of pools as JSON, and parse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from leasectl.backends.kinds import kind_of
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.rules.membership import Cordon, Properties
from leasectl.errors import CorruptState, InvalidRequest
from leasectl.leases.marks import MarkState
from leasectl.model import Labels, Lease
from leasectl.pools.circular_waits import circular_waits
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.overview import (
    NOTHING_SAID,
    GuardPlace,
    Holder,
    Overview,
    Renewer,
    Rows,
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
from leasectl.system.clock import rfc3339
from leasectl.text.properties import (
    MALFORMED,
    parse_conditions,
    read_integer,
    read_name,
    read_number,
    read_optional,
    read_text,
    read_time,
    reason_of,
    written,
)
from leasectl.text.wording import printable

_LONGEST_SHOWN = 2000


def read_shown(value: object) -> str:
    """A text, made safe to show."""
    return printable(read_text(value), longest=_LONGEST_SHOWN)


def unreadable(backend: str, error: Exception) -> CorruptState:
    """What a backend tells of its pools isn't what any version has written.

    Args:
        backend: The URL that it was asked of.
        error: What came of reading it.
    """
    said = printable(reason_of(error), longest=80)
    return CorruptState(f"{backend}: what it tells of its pools can't be read: {said}")


_AsList = Callable[[Iterable[object]], Iterable[object]]
_GUARDS: dict[str, GuardPlace] = {each: each for each in get_args(GuardPlace)}
_RENEWERS: dict[str, Renewer] = {each: each for each in get_args(Renewer)}
_MARK_STATES: dict[str, MarkState] = {each: each for each in get_args(MarkState)}


def pool_counts(pool: ShownPool) -> dict[str, int]:
    """The numbers of a pool; unavailable resources have no holder, but aren't granted."""
    return {
        "capacity": pool.capacity,
        "free": pool.free,
        "held": pool.held,
        "waiting": len(pool.queue),
        "unavailable": pool.unavailable,
    }


def pool_grants(pool: ShownPool) -> dict[str, float | None]:
    """How a pool grants."""
    return {
        **pool.settings._asdict(),
        "next_grant_in_seconds": round(pool.next_grant_in_seconds, 3),
        "default_grace_seconds": pool.default_grace_seconds,
    }


def encode_overview(overview: Overview, *, as_list: _AsList = list) -> dict[str, object]:
    """Encode an overview as JSON; `parse_overview` reads it back.

    Args:
        overview: What is to be shown.
        as_list: Makes the lists that may be long; ``iter`` if they are written as they are made.
    """
    return {
        "backend": overview.backend,
        "at": rfc3339(overview.at),
        "pools": [_pool_fields(pool, overview.rows, as_list) for pool in overview.pools],
        "works": [_work_fields(pool, overview.rows, as_list) for pool in overview.works],
        "circular_waits": [each._asdict() for each in circular_waits(overview)],
    }


def _work_fields(pool: ShownPool, rows: Rows, as_list: _AsList) -> dict[str, object]:
    key, inputs = work_of_pool(pool)
    return {"work": key, "inputs": inputs, **_pool_fields(pool, rows, as_list)}


def _pool_fields(pool: ShownPool, rows: Rows, as_list: _AsList) -> dict[str, object]:
    return {
        "type": pool.type,
        **pool_counts(pool),
        **pool_grants(pool),
        "resources": as_list(map(_resource_fields, rows.resources(pool))),
        "queue": as_list(map(_waiter_fields, rows.queue(pool))),
    }


def _resource_fields(resource: ShownResource) -> dict[str, object]:
    lease = resource.lease
    # A copy, which of thousands takes less long than to make each grow.
    fields = _FREE_FIELDS.copy()
    fields["name"] = resource.name
    if lease is not None:
        fields["state"] = _state(lease)
        _set_lease_fields(fields, lease)
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


def _state(shown: ShownLease) -> str:
    if shown.ended is not None:
        return "ended"
    return "unconfirmed" if shown.unconfirmed else "held"


def lease_spec(lease: Lease) -> dict[str, object]:
    """A lease in the words of the Kubernetes LeaseSpec, and what orders it among others."""
    fields: dict[str, object] = {}
    _set_lease_spec(fields, lease)
    return fields


def _set_lease_spec(fields: dict[str, object], lease: Lease) -> None:
    fields["holder_identity"] = lease.holder_identity
    fields["acquire_time"] = rfc3339(lease.acquire_time)
    fields["renew_time"] = rfc3339(lease.renew_time)
    fields["lease_duration_seconds"] = lease.lease_duration_seconds
    fields["lease_transitions"] = lease.lease_transitions
    fields["fence"] = lease.fence or None
    fields["grant"] = lease.grant or None
    fields["ticket"] = lease.ticket or None


def _set_lease_fields(fields: dict[str, object], shown: ShownLease) -> None:
    lease, holder = shown.lease, shown.holder
    release_time = rfc3339(shown.release_time)
    _set_lease_spec(fields, lease)
    fields["guard_pid"] = shown.guard_pid
    fields["host"] = holder.host or None
    fields["expires_in_seconds"] = shown.expires_in_seconds
    fields["handle"] = holder.handle
    fields["job"] = holder.job
    fields["build"] = holder.build
    fields["owner"] = holder.owner
    fields["pid"] = shown.pid
    fields["guard"] = shown.guard
    fields["release_time"] = release_time
    fields["renewed_by"] = shown.renewed_by
    fields["labels"] = dict(lease.labels)
    fields["ended"] = shown.ended
    fields["release_at"] = release_time  # the one word for it; the other is for programs of before


def _free_fields() -> dict[str, object]:
    """The fields of a free resource without membership, properties or mark."""
    lease: dict[str, object] = {}
    nothing = Lease("", 0, 0, 0, "", 0.0, 0.0, None, 0)
    _set_lease_fields(lease, ShownLease(nothing, parse_holder("")))
    return {
        "name": "",
        # Whether anybody may have it is told apart: older programs know this word.
        "state": "free",
        **dict.fromkeys(lease),
        "properties": {},
        "membership": _membership_fields(NOTHING_SAID),
        "mark": None,
        "in_use": False,
    }


_FREE_FIELDS = _free_fields()


def _holder_fields(holder: Holder) -> dict[str, object]:
    return {
        "handle": holder.handle,
        "job": holder.job,
        "build": holder.build,
        "owner": holder.owner,
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


def parse_overview(fields: Any, *, backend: str) -> Overview:
    """Read what `encode_overview` wrote, perhaps in a newer version; text is made safe to show.

    Args:
        fields: What JSON held.
        backend: The URL that it was asked of here.

    Raises:
        CorruptState: It isn't what any version has written.
    """
    try:
        return Overview(
            backend,
            read_time(fields["at"]),
            tuple(map(_pool, fields["pools"])),
            tuple(map(_pool, fields.get("works") or ())),
        )
    except (*MALFORMED, InvalidRequest) as error:
        raise unreadable(backend, error) from error


def _pool(fields: Any) -> ShownPool:
    return ShownPool(
        read_name(fields["type"]),
        tuple(map(_resource, fields["resources"])),
        tuple(map(_waiter, fields["queue"])),
        _settings(fields),
        read_number(fields.get("next_grant_in_seconds") or 0),
        read_optional(read_number, fields.get("default_grace_seconds")),
    )


def _settings(fields: Any) -> PoolSettings:
    """How a pool grants; an older version says nothing of it."""
    if fields.get("pace_seconds") is None:
        return NO_SETTINGS
    return PoolSettings(
        read_number(fields["pace_seconds"]),
        read_integer(fields["burst"]),
        read_number(fields["aging_seconds"]),
    )


def _resource(fields: Any) -> ShownResource:
    name = read_name(fields["name"])
    return ShownResource(
        name,
        None if fields["holder_identity"] is None else _lease(name, fields),
        _membership(fields.get("membership") or {}),
        _properties(fields.get("properties") or {}),
        read_optional(_mark, fields.get("mark")),
        bool(fields.get("in_use")),
    )


def _membership(fields: Any) -> ShownMembership:
    """What is so of a name in its pool; an older version says nothing of it."""
    return ShownMembership(
        cordoned=bool(fields.get("cordoned")),
        moves_to=read_optional(read_name, fields.get("moves_to")),
        leaves=bool(fields.get("leaves")),
        expected=read_optional(read_name, fields.get("expected")),
        by_default=bool(fields.get("by_default")),
        held_back_seconds=read_optional(read_number, fields.get("held_back_seconds")),
        ttl_seconds=read_optional(read_number, fields.get("ttl_seconds")),
        leaves_in_seconds=read_optional(read_number, fields.get("leaves_in_seconds")),
        pid=read_optional(read_integer, fields.get("pid")),
        cordon=read_optional(_cordon, fields.get("cordon")),
    )


def _cordon(fields: Any) -> Cordon:
    return Cordon(read_shown(fields["by"]), read_time(fields["at"]), read_shown(fields["reason"]))


def _mark(fields: Any) -> ShownMark:
    return ShownMark(_MARK_STATES.get(fields["state"], "marked"), read_shown(fields["asked_by"]))


def _properties(value: Any) -> Properties:
    return tuple(sorted((read_name(key), read_shown(text)) for key, text in value.items()))


def _lease(name: str, fields: Any) -> ShownLease:
    identity = read_shown(fields["holder_identity"])
    lease = Lease(
        name=name,
        fence=read_integer(fields["fence"] or 0),
        ticket=read_integer(fields["ticket"] or 0),
        grant=read_integer(fields["grant"] or 0),
        holder_identity=identity,
        acquire_time=read_time(fields["acquire_time"]),
        renew_time=read_time(fields["renew_time"]),
        lease_duration_seconds=read_optional(read_number, fields["lease_duration_seconds"]),
        lease_transitions=read_integer(fields["lease_transitions"]),
        labels=_labels(fields["labels"]),
    )
    return ShownLease(
        lease,
        parse_holder(identity),
        unconfirmed=fields["state"] == "unconfirmed",
        guard=_GUARDS.get(fields["guard"], "unknown"),
        guard_pid=read_optional(read_integer, fields["guard_pid"]),
        pid=read_optional(read_integer, fields["pid"]),
        release_time=read_optional(read_time, fields["release_time"]),
        expires_in_seconds=read_optional(read_number, fields["expires_in_seconds"]),
        renewed_by=_RENEWERS.get(fields["renewed_by"]),
        ended=read_optional(read_shown, fields.get("ended")),
    )


def _waiter(fields: Any) -> ShownWaiter:
    return ShownWaiter(
        position=read_integer(fields["position"]),
        ticket=read_integer(fields["ticket"]),
        holder=parse_holder(read_shown(fields["holder_identity"])),
        count=read_integer(fields["count"]),
        name=read_optional(read_name, fields["name"]),
        since=read_time(fields["since"]),
        pid=read_optional(read_integer, fields["pid"]),
        labels=_labels(fields["labels"]),
        suspended=bool(fields.get("suspended")),
        priority=read_integer(fields.get("priority") or 0),
        effective_priority=read_integer(fields.get("effective_priority") or 0),
        where=parse_conditions([read_shown(each) for each in fields.get("where") or ()]),
    )


def _labels(value: Any) -> Labels:
    return tuple((read_shown(key), read_shown(text)) for key, text in value.items())


def encode_counts(counts: Counts) -> dict[str, object]:
    """Counts as JSON has them; `parse_counts` reads them back."""
    pools = list(map(_type_fields, counts.types))
    return {"backend": counts.backend, "at": rfc3339(counts.at), "pools": pools}


def _type_fields(counted: CountedType) -> dict[str, object]:
    return {
        "type": counted.type,
        "capacity": counted.capacity,
        "free": counted.free,
        "held": counted.held,
        "waiting": counted.waiting,
        "states": dict(counted.states),
        "owners": [
            {
                "owner": each.owner,
                "held": each.number,
                "handle": each.handle,
                "names": list(each.names),
                "since": rfc3339(each.since),
            }
            for each in counted.owners
        ],
        "lost": [
            {"name": each.name, "holder_identity": each.holder_identity, "at": rfc3339(each.at)}
            for each in counted.lost
        ],
    }


def are_counts(fields: Any) -> bool:
    """Tell whether what a server has told of its pools is what another one has counted."""
    try:
        return kind_of(read_text(fields["backend"])).counts_types
    except (*MALFORMED, InvalidRequest):
        return False


def parse_counts(fields: Any, *, backend: str) -> Counts:
    """Read what `encode_counts` wrote, perhaps in a newer version; text is made safe to show.

    Args:
        fields: What JSON held.
        backend: The URL that it was asked of here.

    Raises:
        CorruptState: It isn't what any version has written.
    """
    try:
        return Counts(backend, read_time(fields["at"]), tuple(map(_counted_type, fields["pools"])))
    except MALFORMED as error:
        raise unreadable(backend, error) from error


def _counted_type(fields: Any) -> CountedType:
    return CountedType(
        read_name(fields["type"]),
        read_integer(fields["free"]),
        {read_shown(state): read_integer(number) for state, number in fields["states"].items()},
        tuple(map(_owner, fields["owners"])),
        read_integer(fields["waiting"]),
        tuple(map(_loss, fields["lost"])),
    )


def _owner(fields: Any) -> CountedOwner:
    return CountedOwner(
        read_shown(fields["owner"]),
        read_integer(fields["held"]),
        read_optional(read_name, fields["handle"]),
        tuple(map(read_name, fields["names"])),
        read_optional(read_time, fields["since"]),
    )


def _loss(fields: Any) -> CountedLoss:
    return CountedLoss(
        read_name(fields["name"]), read_shown(fields["holder_identity"]), read_time(fields["at"])
    )
