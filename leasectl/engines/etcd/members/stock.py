"""The resources of a pool, as far as they matter to waiters.

Apart from `member/<name>`, where all that is known of a name is, so that one range shows it of all
in a pool. It is written in the same transaction, and goes with the name to another pool.

Whatever changes who may have what, but for claims and what ends them, writes ``pool/<type>`` anew,
of each pool that is concerned: a name that comes or goes, takes no holder any more or takes them
again, or is something else. That wakes all who wait, as what they wait for may have become
impossible or possible, and no claim is made by what was seen before: claims are guarded by it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.requests import Found, Json, KeyValue, delete, put, read_all
from leasectl.engines.etcd.key_values import name_in, unreadable
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import encode_properties, parse_properties
from leasectl.engines.membership import Member, Properties
from leasectl.text.properties import MALFORMED, read_json, read_name, read_optional


def encode_closed(member: Member) -> str:
    """Write why a resource takes no new holder; `parse_closed` reads it back."""
    return json.dumps(
        {"cordoned": member.cordoned, "moves_to": member.moves_to, "leaves": member.leaves}
    )


def parse_closed(kv: KeyValue) -> Member:
    """Read a key below ``closed/``: what it says of the name that it is for."""
    try:
        record = read_json(kv.value)
        return Member(
            name_in(kv),
            cordoned=bool(record["cordoned"]),
            moves_to=read_optional(read_name, record["moves_to"]),
            leaves=bool(record["leaves"]),
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error


class Stock(NamedTuple):
    """The resources of a pool at one revision.

    Args:
        members: Each, by name, as far as it says who may have it.
    """

    members: dict[str, Member]

    def properties(self, name: str) -> Properties:
        """What a resource is; nothing for one that isn't there."""
        member = self.members.get(name)
        return () if member is None else member.properties


def stock_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """What a request has to read of a pool's resources; `parse_stock` takes the answers."""
    return (
        read_all(keys.resources(pool_type), keys_only=True),
        read_all(keys.all_closed(pool_type)),
        read_all(keys.properties(pool_type)),
    )


def parse_stock(pool_type: str, answers: Sequence[Found]) -> Stock:
    """What came of `stock_reads`."""
    resources, closed_ones, properties = answers
    closed = {each.name: each for each in map(parse_closed, closed_ones.items)}
    is_so = {name_in(kv): parse_properties(kv) for kv in properties.items}
    members = {}
    for name in map(name_in, resources.items):
        member = Member(name, pool_type, properties=is_so.get(name, ()))
        why = closed.get(name)
        if why is not None:
            member = why._replace(pool=pool_type, properties=member.properties)
        members[name] = member
    return Stock(members)


def stock_writes(keys: Keys, before: Member, after: Member) -> list[Json]:
    """What has that be so of a name which has become of it, in a transaction.

    Not the pools themselves: each is written once, however many names are changed.
    """
    then: list[Json] = []
    if before.pool is not None and before.pool != after.pool:
        then.append(delete(keys.property(before.pool, before.name)))
        then.append(delete(keys.closed(before.pool, before.name)))
    if after.pool is None:
        return then
    is_new = before.pool != after.pool
    key = keys.property(after.pool, after.name)
    if is_new or after.properties != before.properties:
        properties = encode_properties(after.properties)
        then.append(put(key, properties) if after.properties else delete(key))
    key = keys.closed(after.pool, after.name)
    if is_new or not closed_alike(before, after):
        then.append(delete(key) if after.takes_holders else put(key, encode_closed(after)))
    return then


def closed_alike(member: Member, other: Member) -> bool:
    """Tell whether two take no new holder for the same reasons, or both take one."""
    return (member.cordoned, member.moves_to, member.leaves) == (
        other.cordoned,
        other.moves_to,
        other.leaves,
    )
