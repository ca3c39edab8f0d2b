"""Tell whether an object is what a write would have made of it.

For answers that were lost (`store`): an object says who has made it, a claim whose it is.
"""

from __future__ import annotations

from collections.abc import Callable

from leasectl.engines.kubernetes.objects.bodies import Body
from leasectl.engines.kubernetes.objects.objects import (
    BY,
    FREED,
    Claim,
    Json,
    ResourceObject,
)
from leasectl.engines.kubernetes.objects.reading import annotations_of, parse_object


def resource_in(raw: Json | None) -> ResourceObject | None:
    """Read an object that is to be a resource; None for one that is none, or nothing."""
    found = None if raw is None else parse_object(raw)
    return found if isinstance(found, ResourceObject) else None


def is_made_by(body: Body) -> Callable[[Json], bool]:
    """What tells whether an object is the one that this has made, by an earlier try perhaps."""
    maker = body["metadata"]["annotations"][BY]
    return lambda raw: annotations_of(raw).get(BY) == maker


def is_same(claim: Claim, other: Claim) -> bool:
    """Tell whether two are the same claim, however often renewed."""
    return (claim.claim_key, claim.fence) == (other.claim_key, other.fence)


def is_freed_by(body: Body) -> Callable[[Json], bool]:
    """What tells whether a claim was ended by this, and not by anybody else who meant to.

    Unknown is what somebody has claimed and freed again since.
    """
    mark = body["metadata"]["annotations"][FREED]
    return lambda raw: annotations_of(raw).get(FREED) == mark


def is_of(claim: Claim) -> Callable[[Json], bool]:
    """What tells whether a resource is held by a claim."""

    def is_ours(raw: Json) -> bool:
        there = resource_in(raw)
        return there is not None and there.claim is not None and is_same(there.claim, claim)

    return is_ours
