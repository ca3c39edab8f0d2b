"""The kinds of events."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Literal, NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.state.event_rows import KEPT_NUMBER, KEPT_SECONDS, EventRows
from leasectl.state.rows import FIRST_DRAWN
from leasectl.text.durations import parse_duration
from leasectl.text.wording import printable

EventKind = Literal[
    "queued",  # a request was put in the queue
    "granted",  # a request got all its resources, after a wait
    "gave up",  # a request ended without a grant
    "lost",  # a lease ended against its holder's will; the holder is told
    "released",  # resources are free again; each grant of a resource has one such end
    "not released",  # such an end without a release: the resource may stay leased for a time
    "noted",  # a reclaim asked for a lease, its holder answered, or a mark was removed
    "pool made",
    "pool changed",
    "pool deleted",
    "work begun",  # `once`: a runner has started the command
    "work done",  # with a result, which others use from then on
    "work failed",
    "work forgotten",  # its result isn't used any more
]


class Event(NamedTuple):
    """One event. Holders are named by their identities; no command line and no environment.

    Args:
        number: Its position in its log; grows, and may leave numbers out.
        time: Wall clock of the process that wrote it, seconds since the epoch.
        kind: What happened.
        type: The pool.
        names: Of its resources; for an event of a pool, of those that came or went.
        fences: Of these, in the same order; empty where the backend has none.
        handle: The handle's id; empty where there is none.
        acquisition: Its number; 0 where there is none.
        holder_identity: Of the waiter or holder; empty where there is none.
        count: How many were asked for; for an event of a pool, how many came or went.
        priority: As asked for.
        ticket: The number of the ticket; 0 where the backend has none.
        grant: The acquisition's number among the pool's grants; 0 where the backend has none.
        wait_seconds: For a grant or a failed request: since the request was sent.
        hold_seconds: For the end of a lease: since its grant.
        by: For the end of a lease: what ended it, one of `ReleasedBy`; else empty.
        reason: For people: why a request failed, who took a lease by force and why, what was
            changed, what was asked or answered.
        build_url: For a request and its grant: the address of the holder's build; else empty.
    """

    number: int
    time: float
    kind: EventKind
    type: str
    names: tuple[str, ...] = ()
    fences: tuple[int, ...] = ()
    handle: str = ""
    acquisition: int = 0
    holder_identity: str = ""
    count: int = 1  # type: ignore[assignment]  # as in Request
    priority: int = 0
    ticket: int = 0
    grant: int = 0
    wait_seconds: float | None = None
    hold_seconds: float | None = None
    by: str = ""
    reason: str = ""
    build_url: str = ""


def waiter_of(event: Event) -> tuple[str, int]:
    """What tells a request's events from others; a request that its client repeats keeps it."""
    if not event.handle:
        return "", event.ticket
    return event.handle, 0 if event.acquisition >= FIRST_DRAWN else event.acquisition


# The sort key of events: only their number.
number_of: Callable[[Event], int] = itemgetter(Event._fields.index("number"))


def add_event(rows: EventRows, event: Event, *, backend: str = "") -> None:
    """Stage an `Event` for writing.

    Args:
        rows: Of the state directory.
        event: The event; it gets its number when it is written.
        backend: The URL of its backend; empty for the embedded pools.
    """
    fields = event._asdict()
    del fields["number"]
    rows.add(backend=backend, **fields)


class Kept(NamedTuple):
    """Which events are kept; older ones are removed as further ones are written.

    Args:
        seconds: How old the oldest may be, by the clock of the process that writes.
        number: How many there may be; 0: none are written.
    """

    seconds: float = KEPT_SECONDS
    number: int = KEPT_NUMBER


def parse_kept(text: str) -> Kept:
    """Read LEASECTL_KEEP_EVENTS: an age, a number, or both: ``30d,100000``; 0 for none.

    Raises:
        InvalidRequest: It is none of these.
    """
    age, comma, number = text.partition(",")
    if not comma and age.strip() == "0":
        return Kept(number=0)
    try:
        most = int(number) if comma else KEPT_NUMBER
        if most < 0:
            raise ValueError
        return Kept(parse_duration(age), most)
    except (ValueError, InvalidRequest):
        raise InvalidRequest(
            f'LEASECTL_KEEP_EVENTS "{printable(text)}": write an age and a number, like '
            "30d,100000, or 0 to keep no events"
        ) from None


class EventFilter(NamedTuple):
    """Which events are wanted; None is any.

    Args:
        type: Of that pool.
        handle: Of that handle.
        name: About that resource.
        holder: With this text in the holder's identity.
        since: Not before that time, wall clock, seconds since the epoch.
        until: Not after that time, on the same clock.
    """

    type: str | None = None
    handle: str | None = None
    name: str | None = None
    holder: str | None = None
    since: float | None = None
    until: float | None = None

    def wants(self, event: Event) -> bool:
        """Return whether an event is wanted."""
        return (
            self.type in (None, event.type)
            and self.handle in (None, event.handle)
            and (self.name is None or self.name in event.names)
            and (self.holder is None or self.holder in event.holder_identity)
            and (self.since is None or event.time >= self.since)
            and (self.until is None or event.time <= self.until)
        )


ALL_EVENTS = EventFilter()


class Missed(NamedTuple):
    """Events that were removed before a reader came to them.

    Args:
        number: How many, of all pools and backends; None if that isn't known, and may be 0.
        until: The time of the first event that is left, or later, wall clock; None if none is left.
        last_number: None of them has a larger number.
        is_restored: The store was restored from an older copy: its numbers went back to this one,
            and some later events have smaller numbers.
    """

    number: int | None
    until: float | None
    last_number: int
    is_restored: bool = False
