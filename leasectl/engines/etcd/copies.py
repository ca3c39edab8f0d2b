"""Find and correct copies that aren't as their objects are.

A write changes an object and its copies together, so only somebody else can have parted them: by
hand, or by a backup of some keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.cluster.objects import Found, ResourceObject
from leasectl.engines.etcd.encoding import decode
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue, delete, put, read_all, unchanged
from leasectl.engines.etcd.keys import Keys


def find_astray(gateway: Gateway, keys: Keys) -> list[str]:
    """Return the keys of copies that are missing, or aren't as their object is, or of none."""
    there, expected, _ = _read(gateway, keys)
    return sorted(
        key for key in there.keys() | expected.keys() if there.get(key) != expected.get(key)
    )


def mend_astray(gateway: Gateway, keys: Keys) -> list[str]:
    """Write these as they are to be; return the keys of those that are."""
    there, expected, objects = _read(gateway, keys)
    mended = []
    for key in sorted(there.keys() | expected.keys()):
        value, owner = expected.get(key), objects.get(key)
        if there.get(key) == value:
            continue
        guards = [] if owner is None else [unchanged(owner.key, owner.mod_revision)]
        write = delete(key) if value is None else put(key, value)
        if gateway.commit(guards, [write]).succeeded:
            mended.append(key)
    return mended


def _read(
    gateway: Gateway, keys: Keys
) -> tuple[dict[str, str], dict[str, str], dict[str, KeyValue]]:
    """Return the copies that are there, those that are to be, and the objects that these are of."""
    asked = map(read_all, (keys.pools(), *keys.all_copies()))
    pools, *copies = gateway.read(*asked).answers
    there = {kv.key: kv.value for found in copies for kv in found.items if kv.value}
    expected: dict[str, str] = {}
    objects: dict[str, KeyValue] = {}
    for kv in pools.items:
        if kv.value[:1] != "{":
            continue
        found = decode(kv)
        for key, value in _copies(keys, found, kv.value):
            expected[key], objects[key] = value, kv
    return there, expected, objects


def _copies(keys: Keys, found: Found, value: str) -> Sequence[tuple[str, str]]:
    made = [(key, value) for key in keys.copies(found)]
    if isinstance(found, ResourceObject) and found.member.pool:
        made.append((keys.at(found.id.name), found.member.pool))
    return made
