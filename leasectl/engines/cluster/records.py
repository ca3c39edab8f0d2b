"""The facts of an object as JSON, as every driver keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast, get_args

from leasectl.engines.cluster.objects import (
    Claim,
    Identity,
    PoolState,
    ResourceObject,
    Said,
    TicketObject,
    stamp,
)
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Lifetime, Member, Pools, Properties, read_cordon
from leasectl.engines.rules.possible import Want
from leasectl.model import Labels, Where, parse_process
from leasectl.state.event import Event, EventKind
from leasectl.text.properties import (
    Malformed,
    read_integer,
    read_name,
    read_number,
    read_optional,
    read_text,
    read_word,
)
from leasectl.text.wording import printable

# Labels have 200 characters at most, and a character that is escaped becomes ten.
LONGEST_SHOWN = 2000
# No kind of event is longer, and a terminal has room for it.
_LONGEST_KIND = 40
_EVENT_TEXTS = ("handle", "holder_identity", "by", "reason", "build_url")
# Wall clock, in seconds; no calendar has more.
YEAR_10000 = 253_402_300_800
_MICRO_TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]00:00)", re.ASCII
)
Record = Mapping[str, Any]
# docs/etcd.md and docs/kubernetes-objects.md describe it.
FORMAT = 1


def parse_time(text: object) -> float:
    """Read a MicroTime, or a Time: wall clock, in seconds."""
    found = _MICRO_TIME.fullmatch(read_text(text))
    if found is None:
        raise Malformed("a field isn't a time")
    micros = (found[2] or "").ljust(6, "0")[:6]
    seconds = datetime.fromisoformat(f"{found[1]}.{micros}+00:00").timestamp()
    if seconds < 0:
        raise Malformed("a time is before 1970")
    return seconds


def safe_text(text: str) -> str:
    """Return text that is safe in a terminal."""
    return printable(text, longest=LONGEST_SHOWN)


def read_safe(value: object) -> str:
    """Read text, made safe in a terminal."""
    return safe_text(read_text(value))


def mapping(value: Any) -> Mapping[str, Any]:
    """What may have entries; none of what is none."""
    return value if isinstance(value, Mapping) else {}


def read_natural(value: Any) -> int:
    """A whole number that isn't less than 0."""
    number = read_integer(value)
    if number < 0:
        raise Malformed("a number is negative")
    return number


def read_positive(value: Any) -> float:
    """A duration, in seconds."""
    number = read_number(value)
    if number <= 0:
        raise Malformed("a duration isn't positive")
    return number


def read_not_negative(value: Any) -> float:
    """A duration, or none."""
    number = read_number(value)
    if number < 0:
        raise Malformed("a duration is negative")
    return number


def read_state(value: Any) -> PoolState:
    """Read the state of a pool."""
    if value not in get_args(PoolState):
        raise Malformed("a field isn't a pool's state")
    state: PoolState = value
    return state


def read_labels(value: Any) -> Labels:
    """Labels of a request, safe to show."""
    return tuple((read_safe(key), read_safe(text)) for key, text in value)


def read_where(value: Any) -> Where:
    """What has to be so of a resource."""
    return tuple(
        (read_name(key), read_safe(wanted), bool(is_equal)) for key, wanted, is_equal in value
    )


# Memberships


def member_record(new: ResourceObject) -> dict[str, Any]:
    """Write what is so of a name beside its pool; empty for nothing."""
    member = new.member
    record: dict[str, Any] = {}
    if member.expected is not None:
        record["expected"] = member.expected
    for field in ("by_default", "cordoned", "cordon", "moves_to", "leaves", "joined"):
        if getattr(member, field):
            record[field] = getattr(member, field)
    if member.lifetime is not None:
        process, ttl = member.lifetime
        record["lifetime"] = {
            "process": None if process is None else process.encode(),
            "ttl_seconds": ttl,
        }
        record["life"] = new.joined
    if member.by_default and new.grace_seconds is not None:
        record["grace"] = (new.grace_seconds, new.came)
    if member.properties:
        record["properties"] = member.properties
    return record


def read_member(name: str, pool: str | None, record: Record) -> Member:
    """Read what is so of a name in a pool, or in none."""
    expected = read_optional(read_name, record.get("expected"))
    if pool is None:
        return Member(name, None, expected)
    return Member(
        name,
        pool,
        expected,
        by_default=bool(record.get("by_default")),
        cordoned=bool(record.get("cordoned")),
        moves_to=read_optional(read_name, record.get("moves_to")),
        leaves=bool(record.get("leaves")),
        lifetime=read_optional(_read_lifetime, record.get("lifetime")),
        joined=read_natural(record.get("joined", 0)),
        properties=_read_properties(record.get("properties", ())),
        cordon=read_cordon(record.get("cordon")),
    )


def read_grace(record: Record) -> tuple[float | None, str]:
    """Read the grace of a name that came to the default pool, and what is different each time."""
    grace, came = record.get("grace") or (None, "")
    return read_optional(read_positive, grace), read_text(came)


def _read_lifetime(record: Record) -> Lifetime:
    return Lifetime(
        read_optional(parse_process, record.get("process")),
        read_optional(read_positive, record.get("ttl_seconds")),
    )


def _read_properties(pairs: Any) -> Properties:
    return tuple(sorted((read_name(key), read_safe(value)) for key, value in pairs))


# Claims


def claim_record(claim: Claim) -> dict[str, Any]:
    """Write a claim, without its end by force and its note."""
    record: dict[str, Any] = {
        "key": claim.claim_key,
        "ticket": claim.ticket,
        "place": claim.place,
        "grant": claim.grant,
        "fence": claim.fence,
        "holder": claim.holder_identity,
        "acquired": stamp(claim.acquire_time),
        "renewed": claim.renewed,
        "ttl": claim.ttl_seconds,
        "transitions": claim.transitions,
        "labels": claim.labels,
    }
    if claim.holder_pid is not None:
        record["pid"] = claim.holder_pid
    if claim.left:
        record["left"] = claim.left
    if claim.release_after_seconds is not None:
        record["release_after"] = claim.release_after_seconds
    return record


def read_claim(record: Record) -> Claim:
    """Read a claim."""
    renewed = read_text(record["renewed"])
    return Claim(
        claim_key=read_safe(record["key"]),
        ticket=read_text(record["ticket"]),
        place=read_natural(record["place"]),
        grant=read_natural(record["grant"]),
        fence=read_natural(record["fence"]),
        holder_identity=read_safe(record["holder"]),
        acquire_time=parse_time(record["acquired"]),
        renew_time=parse_time(renewed),
        renewed=renewed,
        ttl_seconds=read_optional(read_positive, record["ttl"]),
        transitions=read_natural(record["transitions"]),
        labels=read_labels(record["labels"]),
        holder_pid=read_optional(read_integer, record.get("pid")),
        release_after_seconds=read_optional(read_number, record.get("release_after")),
        left=tuple(map(read_text, record.get("left", ()))),
    )


def read_note(text: object) -> str:
    """Read a note, safe to show."""
    from leasectl.engines.notes import LONGEST_NOTE  # few claims have one

    return printable(read_text(text), longest=10 * LONGEST_NOTE)


# Tickets


def ticket_record(new: TicketObject) -> dict[str, Any]:
    """Write what never changes of a ticket."""
    return {
        "key": new.claim_key,
        "holder": new.holder_identity,
        "count": new.count,
        "name": new.want.name,
        "where": new.want.where,
        "priority": new.priority,
        "labels": new.labels,
        "pid": new.pid,
        "process": new.process.encode() if new.process else None,
        "ttl": new.ttl_seconds,
        "order": new.order,
    }


def read_ticket(
    id_: Identity,
    raw: Any,
    pool: str,
    record: Record,
    *,
    place: int,
    is_parked: bool,
    renewed: str,
    counts_as: object = None,
    since: object,
) -> TicketObject:
    """Read a ticket, with what a driver keeps of it elsewhere."""
    priority = read_integer(record["priority"])
    return TicketObject(
        id_,
        raw,
        pool,
        place,
        read_natural(record.get("order", 0)),
        is_parked,
        claim_key=read_safe(record["key"]),
        holder_identity=read_safe(record["holder"]),
        ttl_seconds=read_positive(record["ttl"]),
        renewed=renewed,
        want=Want(read_optional(read_name, record.get("name")), read_where(record["where"])),
        count=read_natural(record["count"]),
        priority=priority,
        counts_as=priority if counts_as is None else read_integer(counts_as),
        since=parse_time(since),
        pid=read_optional(read_integer, record.get("pid")),
        labels=read_labels(record["labels"]),
        process=read_optional(parse_process, record.get("process")),
    )


# Pools


def settings_record(settings: PoolSettings) -> dict[str, Any]:
    """Write how a pool grants."""
    return {"format": FORMAT, **settings._asdict()}


def read_settings(record: Record) -> PoolSettings:
    """Read how a pool grants."""
    if record.get("format") != FORMAT:
        raise Malformed(f"format {record.get('format')}, not {FORMAT}")
    settings = PoolSettings(
        pace_seconds=read_not_negative(record["pace_seconds"]),
        burst=read_natural(record["burst"]),
        aging_seconds=read_not_negative(record["aging_seconds"]),
    )
    if settings.burst < 1:
        raise Malformed("a burst is less than 1")
    return settings


def belonging_record(pools: Pools, pending: Pools | None) -> dict[str, Any]:
    """Write the default pool and the patterns, and what they are about to be."""
    record = _pools_record(pools)
    if pending is not None:
        record["pending"] = _pools_record(pending)
    return record


def read_belonging(record: Record) -> tuple[Pools, Pools | None]:
    """Read the default pool and the patterns, and what they are about to be."""
    return _read_pools(record), read_optional(_read_pools, record.get("pending"))


def _pools_record(pools: Pools) -> dict[str, Any]:
    return {
        "default": pools.default,
        "grace_seconds": pools.grace_seconds,
        "patterns": dict(pools.patterns),
    }


def _read_pools(record: Record) -> Pools:
    default = read_optional(read_name, record["default"])
    seconds = read_not_negative(record["grace_seconds"])
    return Pools(frozenset(), default, seconds, read_patterns(record["patterns"]))


def read_patterns(record: Record) -> dict[str, str]:
    """Read the pools of patterns."""
    return {read_text(each): read_name(to) for each, to in record.items()}


# Values


def said_record(said: Said) -> dict[str, Any]:
    """Write a value, without its content."""
    return {
        "version": said.version,
        "written": stamp(said.written_at),
        "until": until_record(said.until),
    }


def read_said(content: bytes, record: Record) -> Said:
    """Read a value, with its content."""
    version, written_at = read_natural(record["version"]), parse_time(record["written"])
    return Said(content, version, written_at, read_until(record["until"]))


def until_record(wall: float | None) -> str | None:
    """Write when a value expires; None for never."""
    return None if wall is None else stamp(min(wall, YEAR_10000 - 1.0))


def read_until(value: Any) -> float | None:
    """Read when a value expires."""
    return read_optional(parse_time, value)


# Events


def event_record(event: Event, *implied: str) -> dict[str, Any]:
    """Return the fields of an event, without defaults and those that its store knows anyway.

    Args:
        event: The event.
        implied: The names of the fields that the store knows.
    """
    defaults = Event._field_defaults
    return {
        field: value
        for field, value in event._asdict().items()
        if field not in implied and (field not in defaults or value != defaults[field])
    }


def read_event(record: Record, read_seconds: Callable[[Any], float], **known: Any) -> Event:
    """Read what `event_record` wrote.

    Args:
        record: The record.
        read_seconds: Checks a time or a duration.
        known: The fields that the record lacks, or doesn't decide.
    """
    get = record.get
    fields: dict[str, Any] = {
        "time": read_seconds(record["time"]),
        "kind": read_event_kind(record["kind"]),
        "names": tuple(map(read_word, get("names", ()))),
        "fences": tuple(map(int, get("fences", ()))),
        "acquisition": int(get("acquisition", 0)),
        "count": int(get("count", 1)),
        "priority": int(get("priority", 0)),
        "ticket": int(get("ticket", 0)),
        "grant": int(get("grant", 0)),
        "wait_seconds": read_optional(read_seconds, get("wait_seconds")),
        "hold_seconds": read_optional(read_seconds, get("hold_seconds")),
    }
    for field in _EVENT_TEXTS:
        fields[field] = read_safe(get(field, ""))
    return Event(**{**fields, **known})


def read_event_kind(value: object) -> EventKind:
    """Read a kind of event, which may be one of a later version."""
    kind = read_text(value)
    if not kind.replace(" ", "").isalpha() or not kind.isascii() or len(kind) > _LONGEST_KIND:
        raise Malformed("a field isn't a kind of event")
    return cast(EventKind, kind)
