"""What is posted about a step, and for which Leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leasectl.state.event import Event


class About(NamedTuple):
    """A Lease that is told of.

    Args:
        object_name: Of the Lease.
        uid: Of this very object; empty where nobody knows.
    """

    object_name: str
    uid: str = ""


class Post(NamedTuple):
    """What a step did.

    Args:
        events: One or several, in their order; their numbers don't count.
        about: Which Leases they tell of.
        title: What it is called in Kubernetes, in one word; empty for the last event's kind.
    """

    events: tuple[Event, ...]
    about: tuple[About, ...]
    title: str = ""
