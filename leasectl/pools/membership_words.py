"""What is so of a resource in its pool, in a few words for people: the same in tables and pages."""

from __future__ import annotations

from collections.abc import Iterator

from leasectl.pools.shown import ShownMark, ShownMembership, ShownResource
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable

CORDONED, HELD_BACK = "cordoned", "held back"


def why_closed(resource: ShownResource) -> str | None:
    """Why nobody gets a resource although it is free; None where somebody does, or has it."""
    if not resource.is_closed:
        return None
    return HELD_BACK if resource.membership.held_back_seconds is not None else CORDONED


def what_is_noted(resource: ShownResource, *, full: bool) -> Iterator[str]:
    """What becomes of a resource, or of its lease, beside what times tell.

    Args:
        resource: The resource.
        full: With who asks, and what is left of a time as it was when it was asked.
    """
    membership = resource.membership
    if resource.mark is not None:
        yield _mark_text(resource.mark, full=full)
    if membership.cordoned and why_closed(resource) != CORDONED:
        yield CORDONED
    if membership.moves_to is not None:
        yield f"moves to {membership.moves_to}"
    if membership.leaves:
        yield "leaves"
    if membership.pid is not None:
        yield f"joined with pid {membership.pid}"
    elif membership.ttl_seconds is not None:
        yield _ttl_text(membership, membership.ttl_seconds, full=full)
    if membership.by_default:
        yield "by default"


def _mark_text(mark: ShownMark, *, full: bool) -> str:
    by = f" by {printable(mark.asked_by, longest=200)}" if full else ""
    if mark.state == "marked":
        return f"asked back{by}"
    return f"asked back{by}: {'ready' if mark.state == 'ready' else 'kept'}"


def _ttl_text(membership: ShownMembership, ttl_seconds: float, *, full: bool) -> str:
    said = f"joined, ttl {format_duration(ttl_seconds)}"
    if not full or membership.leaves_in_seconds is None:
        return said
    return f"{said}: {format_duration(max(0.0, membership.leaves_in_seconds))} left"
