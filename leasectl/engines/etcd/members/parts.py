"""Split a change that is too large for one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.changes import Renaming
from leasectl.engines.etcd.members.records import encode_member

# Its writes go in groups of 32, each of which etcd allows as many as the guards leave of 128
# (`grouped`); one guard more is for where names belong, one for the bucket of events, and some for
# what else is done.
_MOST_GUARDS = 88
# Of the 1.5 MiB that a request may have, in base64; and properties are written twice.
_MOST_BYTES = 300_000


def in_parts(keys: Keys, renamings: Iterable[Renaming]) -> list[list[Renaming]]:
    """What becomes of names, in parts of which each is for one transaction."""
    parts: list[list[Renaming]] = []
    guards: set[str] = set()
    size = 0
    for each in renamings:
        pools = {*each.pools_needed(), *each.pools_concerned()}
        own = {*map(str, each.view.guards(keys)), *pools}
        length = len(encode_member(each.after, each.word))
        if not parts or len(guards | own) > _MOST_GUARDS or size + length > _MOST_BYTES:
            parts.append([])
            guards, size = set(), 0
        parts[-1].append(each)
        guards |= own
        size += length
    return parts
