"""Read notes together with claims."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.engines.kubernetes.objects.objects import ResourceObject
from leasectl.engines.notes import Note


def notes_in(resources: Iterable[ResourceObject]) -> tuple[Note, ...]:
    """What is noted at the claims of some resources."""
    return tuple(
        Note(each.member.pool, each.name, each.claim.fence, each.claim.note)
        for each in resources
        if each.claim is not None
        and each.claim.note is not None
        and not each.claim.ended
        and each.member.pool is not None
    )
