"""Encode and parse memberships.

Each that is written carries a word of whoever wrote it, who knows it again by that when the answer
was lost.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.key_values import name_in, safe_text, unreadable
from leasectl.engines.etcd.records import Free
from leasectl.engines.membership import Lifetime, Member, Pools, Properties, read_cordon
from leasectl.model import parse_process
from leasectl.system.process import is_dead_here
from leasectl.text.properties import (
    MALFORMED,
    read_json,
    read_name,
    read_number,
    read_optional,
    read_text,
)


class Bound(NamedTuple):
    """What a release of a resource has to heed, as ``bound/`` has it.

    Args:
        is_closed: Nobody may have it.
        has_life: It is in its pool only as long as its ``life/`` is there.
        is_free: Nobody has it either, and no key below ``free/`` says so.
        last_holder: Of one that is closed and free: as in `Free`.
        transitions: Likewise.
    """

    is_closed: bool
    has_life: bool = False
    is_free: bool = False
    last_holder: str | None = None
    transitions: int = 0


def encode_member(member: Member, by: str) -> str:
    """Write what is so of a name beside who holds it; `parse_member` reads it back."""
    lifetime = member.lifetime
    record: dict[str, Any] = {
        "pool": member.pool,
        "expected": member.expected,
        "by_default": member.by_default,
        "cordoned": member.cordoned,
        "cordon": member.cordon,
        "moves_to": member.moves_to,
        "leaves": member.leaves,
        "lifetime": None if lifetime is None else _encode_lifetime(lifetime),
        "joined": member.joined,
        "properties": member.properties,
        "by": by,
    }
    return json.dumps({key: value for key, value in record.items() if value})


def parse_member(kv: KeyValue | None, name: str, pool: str | None) -> Member:
    """Read a key below ``member/``.

    Args:
        kv: What is there.
        name: Of which name.
        pool: That it is in, which ``name/`` says. What was written of it in another is void.
    """
    if kv is None:
        return Member(name, pool)
    try:
        record = read_json(kv.value)
        expected = read_optional(read_name, record.get("expected"))
        if pool is None or record.get("pool") != pool:
            return Member(name, pool, expected)
        return Member(
            name,
            pool,
            expected,
            by_default=bool(record.get("by_default")),
            cordoned=bool(record.get("cordoned")),
            moves_to=read_optional(read_name, record.get("moves_to")),
            leaves=bool(record.get("leaves")),
            lifetime=read_optional(_read_lifetime, record.get("lifetime")),
            joined=int(record.get("joined", 0)),
            properties=_read_properties(record.get("properties", ())),
            cordon=read_cordon(record.get("cordon")),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def is_by(kv: KeyValue | None, word: str) -> bool:
    """Tell whether somebody has written what is there below ``member/``, by that word."""
    return kv is not None and f'"by": {json.dumps(word)}' in kv.value


def encode_properties(properties: Properties) -> str:
    """Write what a resource is; `parse_properties` reads it back."""
    return json.dumps(properties)


def parse_properties(kv: KeyValue) -> Properties:
    """Read a key below ``property/``."""
    try:
        return _read_properties(read_json(kv.value))
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def encode_bound(bound: Bound) -> str:
    """Write what a release has to heed; `parse_bound` reads it back."""
    record: dict[str, Any] = {"closed": bound.is_closed, "has_life": bound.has_life}
    if bound.is_free:
        record["free"] = {"last_holder": bound.last_holder, "transitions": bound.transitions}
    return json.dumps(record)


def parse_bound(kv: KeyValue) -> Bound:
    """Read a key below ``bound/``."""
    try:
        record = read_json(kv.value)
        bound = Bound(bool(record["closed"]), bool(record["has_life"]))
        free = record.get("free")
        if free is None:
            return bound
        last_holder = read_optional(read_text, free["last_holder"])
        return bound._replace(
            is_free=True, last_holder=last_holder, transitions=int(free["transitions"])
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def encode_life(lifetime: Lifetime) -> str:
    """Write with whom a membership ends."""
    return "" if lifetime.process is None else lifetime.process.encode()


def has_ended(lifetime: Lifetime | None, life: KeyValue | None) -> bool:
    """Tell whether a membership has, by its lifetime and by what is left of that in ``life/``."""
    return lifetime is not None and (life is None or is_dead_here(lifetime.process))


def encode_belonging(pools: Pools, by: str) -> str:
    """Write where names belong of which nobody says more; `parse_belonging` reads it back."""
    record: dict[str, Any] = {
        "default": pools.default,
        "grace": pools.grace_seconds,
        "patterns": dict(pools.patterns),
        "by": by,
    }
    return json.dumps(record)


def parse_belonging(kv: KeyValue | None, types: frozenset[str]) -> Pools:
    """Read what `encode_belonging` wrote, if anybody has said anything.

    Args:
        kv: Where it is.
        types: Of the pools that there are.
    """
    if kv is None:
        return Pools(types)
    try:
        record = read_json(kv.value)
        patterns = record["patterns"].items()
        return Pools(
            types,
            read_optional(read_name, record["default"]),
            read_number(record["grace"]),
            {safe_text(read_text(each)): read_name(to) for each, to in patterns},
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


def free_of(bound: Bound, kv: KeyValue) -> Free:
    """What a key below ``bound/`` says of a resource that is closed and free."""
    return Free(kv.key, kv.mod_revision, name_in(kv), bound.last_holder, bound.transitions)


def _encode_lifetime(lifetime: Lifetime) -> dict[str, Any]:
    process = None if lifetime.process is None else lifetime.process.encode()
    return {"process": process, "ttl": lifetime.ttl_seconds}


def _read_lifetime(value: Any) -> Lifetime:
    process = read_optional(read_text, value.get("process"))
    return Lifetime(
        None if process is None else parse_process(process),
        read_optional(read_number, value.get("ttl")),
    )


def _read_properties(value: Any) -> Properties:
    return tuple((safe_text(read_text(key)), safe_text(read_text(text))) for key, text in value)
