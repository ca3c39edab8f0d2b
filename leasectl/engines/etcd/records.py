"""Encode and parse the records of pools."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.key_values import (
    etcd_lease_id_in,
    name_in,
    number_in,
    read_labels,
    read_time,
    safe_labels,
    safe_text,
    unreadable,
)
from leasectl.engines.facts import PoolSettings, QueueEntry
from leasectl.engines.pool_format import FORMAT, check_format
from leasectl.errors import InvalidRequest
from leasectl.model import Claimant, Labels, Lease, Request, Where
from leasectl.text.naming import is_resource_name
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_integer,
    read_json,
    read_name,
    read_number,
    read_optional,
    read_text,
)
from leasectl.text.wording import printable

# Each has a guard, and a transaction takes 128: there is room for what else a claim guards.
MOST_AT_ONCE = 60
_FENCES_PER_REVISION = 128


class Claim(NamedTuple):
    """One acquisition's claim, as ``held/`` has it.

    Args:
        etcd_lease_id: Of the etcd lease that it is attached to.
        claim_key: What it is found by, with its state id.
        names: What it holds, in the order of the fences.
        indices: Of each in the claim as it was made; the fences are made of them.
        transitions: Of each.
        revision: Of the claim; 0 while it is that of the key.
        labels: As they were written, which may be unsafe to show; `leases` makes them safe.
        holder_pid: As the claimant said, if it did.
        release_after_seconds: Likewise.
        ended: Who has ended it by force, and why, while it is kept for its holder; else empty.
    """

    etcd_lease_id: int
    claim_key: str
    holder_identity: str
    names: tuple[str, ...]
    indices: tuple[int, ...]
    transitions: tuple[int, ...]
    revision: int
    ticket: int
    grant: int
    acquire_time: float
    lease_duration_seconds: float | None
    labels: Labels
    holder_pid: int | None = None
    release_after_seconds: float | None = None
    ended: str = ""

    @property
    def fences(self) -> tuple[int, ...]:
        return tuple(fence(self.revision, index) for index in self.indices)

    def seconds_left(self, renewed: float, now: float) -> float:
        """How long a holder may count on it that renewed it at a time; both are wall clock.

        Returns:
            Seconds, 0 when its time is over, and never more than the ttl, whatever clocks say.
        """
        ttl = self.lease_duration_seconds
        return 0.0 if ttl is None else min(max(0.0, renewed + ttl - now), ttl)

    def without(self, names: frozenset[str]) -> Claim:
        """What is left when some names are taken out."""
        kept = [n for n, name in enumerate(self.names) if name not in names]
        return self._replace(
            names=tuple(self.names[n] for n in kept),
            indices=tuple(self.indices[n] for n in kept),
            transitions=tuple(self.transitions[n] for n in kept),
        )

    def leases(self, renew_time: float) -> tuple[Lease, ...]:
        """The leases of the claim; ``renew_time`` is wall clock, in seconds."""
        labels = safe_labels(self.labels)
        return tuple(
            Lease(
                name=name,
                fence=fence,
                ticket=self.ticket,
                grant=self.grant,
                holder_identity=self.holder_identity,
                acquire_time=self.acquire_time,
                renew_time=renew_time,
                lease_duration_seconds=self.lease_duration_seconds,
                lease_transitions=transitions,
                labels=labels,
            )
            for name, fence, transitions in zip(self.names, self.fences, self.transitions)
        )


class Free(NamedTuple):
    """A free resource, as ``free/`` has it, at the revision of its key.

    Args:
        last_holder: Its last holder's identity; None when there was none.
        transitions: How often it went from one holder to another.
        has_life: It is in its pool only as long as its ``life/`` is there.
    """

    key: str
    mod_revision: int
    name: str
    last_holder: str | None
    transitions: int
    has_life: bool = False


def fence(revision: int, index: int) -> int:
    """The fence of a resource that was claimed at a revision of etcd."""
    return revision * _FENCES_PER_REVISION + index


def revision_of(fence: int) -> int:
    """The revision of etcd at which a resource was claimed that has this fence."""
    return fence // _FENCES_PER_REVISION


def last_fence(resource: KeyValue) -> int:
    """The fence of a resource's last claim; 0 when it was never claimed."""
    return fence(resource.mod_revision, int(number_in(resource))) if resource.value else 0


def check_count(request: Request) -> None:
    """Refuse what one transaction can't do."""
    if request.count > MOST_AT_ONCE:
        raise InvalidRequest(
            f"--count {request.count}: etcd grants at most {MOST_AT_ONCE} at once, "
            "because a transaction has at most 128 operations"
        )


def encode_free(last_holder: str | None, transitions: int, *, has_life: bool = False) -> str:
    """Write who had a free resource last; `parse_free` reads it back."""
    record: dict[str, Any] = {"last_holder": last_holder, "transitions": transitions}
    if has_life:
        record["has_life"] = True
    return json.dumps(record)


def parse_free(kv: KeyValue) -> Free:
    """Read a key below ``free/``."""
    try:
        record = read_json(kv.value)
        last = record["last_holder"]
        found = Free(
            kv.key,
            kv.mod_revision,
            name_in(kv),
            None if last is None else str(last),
            read_integer(record["transitions"]),
            bool(record.get("has_life")),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error
    return found


def encode_claim(claim: Claim) -> str:
    """Write a claim; `parse_claim` reads it back."""
    record: dict[str, Any] = {
        "owner": claim.claim_key,
        "holder_identity": claim.holder_identity,
        "names": claim.names,
        "places": claim.indices,
        "transitions": claim.transitions,
        "revision": claim.revision,
        "ticket": claim.ticket,
        "grant": claim.grant,
        "acquire_time": claim.acquire_time,
        "lease_duration_seconds": claim.lease_duration_seconds,
        "labels": claim.labels,
        "pid": claim.holder_pid,
        "release_after": claim.release_after_seconds,
    }
    if claim.ended:
        record["ended"] = claim.ended
    return json.dumps(record)


def parse_claim(kv: KeyValue) -> Claim:
    """Read a key below ``held/``."""
    try:
        record = read_json(kv.value)
        names, indices = (
            tuple(map(str, record["names"])),
            tuple(map(read_integer, record["places"])),
        )
        duration = record["lease_duration_seconds"]
        if not names or not all(map(is_resource_name, names)):
            raise Malformed("a name is not allowed")
        return Claim(
            etcd_lease_id=etcd_lease_id_in(kv),
            claim_key=safe_text(read_text(record["owner"])),
            holder_identity=safe_text(read_text(record["holder_identity"])),
            names=names,
            indices=indices,
            transitions=tuple(map(read_integer, record["transitions"])),
            revision=read_integer(record["revision"]) or kv.mod_revision,
            ticket=read_integer(record["ticket"]),
            grant=read_integer(record["grant"]),
            acquire_time=read_time(record["acquire_time"]),
            lease_duration_seconds=None if duration is None else read_number(duration),
            labels=read_labels(record["labels"]),
            holder_pid=read_optional(read_integer, record["pid"]),
            release_after_seconds=read_optional(read_time, record["release_after"]),
            ended=safe_text(read_text(record.get("ended", ""))),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def encode_ticket(claimant: Claimant, claim_key: str, since: float) -> str:
    """Write a ticket; the claim key has its state id, ``since`` is wall clock, in seconds."""
    record: dict[str, Any] = {
        "owner": claim_key,
        "holder_identity": claimant.holder_identity,
        "count": claimant.request.count,
        "since": since,
        "pid": claimant.process.pid if claimant.process else None,
        "name": claimant.request.name,
        "labels": claimant.request.labels,
        "priority": claimant.request.priority,
    }
    if claimant.request.where:
        record["where"] = claimant.request.where
    return json.dumps(record)


def parse_ticket(kv: KeyValue) -> QueueEntry:
    """Read a key below ``ticket/``; the claim key has its state id."""
    try:
        record = read_json(kv.value)
        return QueueEntry(
            ticket=kv.create_revision,
            holder_identity=safe_text(read_text(record["holder_identity"])),
            count=read_integer(record["count"]),
            since=read_time(record["since"]),
            claim_key=safe_text(read_text(record["owner"])),
            pid=read_optional(read_integer, record["pid"]),
            name=read_optional(read_name, record["name"]),
            labels=safe_labels(read_labels(record["labels"])),
            priority=read_integer(record["priority"]),
            effective_priority=read_integer(record["priority"]),
            where=_read_where(record.get("where", ())),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def _read_where(value: Any) -> Where:
    return tuple(
        (read_name(key), safe_text(read_text(wanted)), bool(is_equal))
        for key, wanted, is_equal in value
    )


def encode_settings(settings: PoolSettings) -> str:
    """Write how a pool grants; `parse_settings` reads it back."""
    return json.dumps({"format": FORMAT, **settings._asdict()})


def parse_settings(kv: KeyValue) -> PoolSettings:
    """Read a key below ``settings/``."""
    try:
        record = read_json(kv.value)
        check_format(record, printable(kv.key))
        settings = PoolSettings(
            pace_seconds=read_time(record["pace_seconds"]),
            burst=read_integer(record["burst"]),
            aging_seconds=read_time(record["aging_seconds"]),
        )
        if settings.burst < 1:
            raise Malformed("a burst is none")
        return settings
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def encode_taken(pool_type: str, by: str) -> str:
    """Write what a resource's name is taken for, and a word of whoever took it.

    `type_in` reads the type back; who took it knows the whole again.
    """
    return f"{pool_type} {by}"
