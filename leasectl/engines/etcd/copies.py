"""Find and correct copies that aren't as their objects are.

A write changes an object and its copies together, so only somebody else can have parted them: by
hand, or by a backup of some keys.
"""

from __future__ import annotations

from typing import NamedTuple

from leasectl.engines.cluster.objects import ResourceObject
from leasectl.engines.etcd.encoding import decode
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    delete,
    put,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.keys import Keys


def find_astray(gateway: Gateway, keys: Keys) -> list[str]:
    """Return the keys of copies that are missing, or aren't as their object is, or of none."""
    return sorted(_read(gateway, keys))


def mend_astray(gateway: Gateway, keys: Keys) -> list[str]:
    """Write these as they are to be; return the keys of those that are."""
    mended = []
    for key, (there, value, owner) in sorted(_read(gateway, keys).items()):
        guards = [unchanged(key, revision_in(there))]
        if owner is not None:
            guards.append(unchanged(owner.key, owner.mod_revision))
        write = delete(key) if value is None else put(key, value)
        if gateway.commit(guards, [write]).succeeded:
            mended.append(key)
    return mended


class _Astray(NamedTuple):
    """A copy that isn't as it is to be.

    Args:
        there: As it is; None if it is missing.
        value: As it is to be; None for one that is to go.
        owner: The object that it is of; None if it is of none.
    """

    there: KeyValue | None
    value: str | None
    owner: KeyValue | None


def _read(gateway: Gateway, keys: Keys) -> dict[str, _Astray]:
    asked = map(read_all, (keys.pools(), *keys.all_copies()))
    pools, pointers, *copies = gateway.read(*asked).answers
    # Of these, the pointer to a name in no pool is empty; among copies, what lives is.
    there = {kv.key: kv for kv in pointers.items}
    there.update((kv.key, kv) for found in copies for kv in found.items if kv.value)
    expected: dict[str, tuple[str, KeyValue]] = {}
    for kv in pools.items:
        if kv.value[:1] != "{":
            continue
        found = decode(kv)
        expected.update((key, (kv.value, kv)) for key in keys.copies(found))
        if isinstance(found, ResourceObject):
            expected[keys.at(found.id.name)] = found.member.pool or "", kv
    astray = {}
    for key in there.keys() | expected.keys():
        is_there, (value, owner) = there.get(key), expected.get(key, (None, None))
        if is_there is None or is_there.value != value:
            astray[key] = _Astray(is_there, value, owner)
    return astray
