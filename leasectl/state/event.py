"""The kinds of events."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Literal, NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.state.event_rows import KEPT_NUMBER, KEPT_SECONDS, EventRows
from leasectl.text.durations import parse_duration
from leasectl.text.wording import printable

EventKind = Literal[
    "queued",  # a ticket was put
    "granted",  # all that was asked for, after a wait
    "gave up",  # a ticket ended without a grant
    "lost",  # a holder's lease ended although it didn't mean it to; it is told
    "released",  # resources are free again, whoever did it; each that was granted has one end
    "not released",  # such an end, of what can't be given back and may stay leased for a time
    "noted",  # a reclaim asked for a lease, its holder answered, or a mark was taken off
    "pool made",
    "pool changed",
    "pool deleted",
    "work begun",  # what is to be done once: somebody runs its command
    "work done",  # with a result, which is used from then on
    "work failed",
    "work forgotten",  # its result is used no more
]


class Event(NamedTuple):
    """One event. Holders are named by their identities; no command line and no environment.

    Args:
        number: Its place in the order of its log; grows, and may leave numbers out.
        time: Wall clock, seconds since the epoch, of whoever wrote it.
        kind: What happened.
        type: The pool.
        names: Of the resources that it is about; of an event of a pool, of those that came or went.
        fences: Of these, in the same order; empty where the backend has none.
        handle: The handle's id; empty where there is none.
        acquisition: Its number; 0 where there is none.
        holder_identity: Who waits or holds; empty where there is none.
        count: How many were asked for; of an event of a pool, how many came or went.
        priority: As asked for.
        ticket: The number of the place in the queue; 0 where the backend has none.
        grant: The acquisition's number among the pool's grants; likewise.
        wait_seconds: Of a grant, or of who gave up: since the request was made.
        hold_seconds: Of what ended: since its grant.
        by: Of what ended: who or what ended it, one of `ReleasedBy`; else empty.
        reason: For people: why it was given up, who took it by force and why, what was changed,
            what was asked or answered.
        build_url: Of a request and its grant: the address of the holder's build; else empty.
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


# What events are sorted by: never by more than that.
number_of: Callable[[Event], int] = itemgetter(Event._fields.index("number"))


def add_event(rows: EventRows, event: Event, *, backend: str = "") -> None:
    """Have an event be written that is known as one.

    Args:
        rows: Of the state directory.
        event: It; its number is given when it is written.
        backend: The URL of where it happened; empty for here.
    """
    rows.add(
        event.time,
        event.kind,
        event.type,
        event.names,
        event.fences,
        backend=backend,
        handle=event.handle,
        acquisition=event.acquisition,
        holder=event.holder_identity,
        count=event.count,
        priority=event.priority,
        ticket=event.ticket,
        grant=event.grant,
        wait=event.wait_seconds,
        hold=event.hold_seconds,
        by=event.by,
        reason=event.reason,
        build_url=event.build_url,
    )


class Kept(NamedTuple):
    """Which events are kept, and which removed as further ones are written.

    Args:
        seconds: How old the oldest may be, by the clock of who writes.
        number: How many there may be; 0: none are written.
    """

    seconds: float = KEPT_SECONDS
    number: int = KEPT_NUMBER


def parse_kept(text: str) -> Kept:
    """Read what LEASECTL_KEEP_EVENTS says: an age, a number, or both: ``30d,100000``; 0 for none.

    Raises:
        InvalidRequest: It can't be meant.
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
        holder: Whose holder's identity has this in it.
        since: Not before that time, wall clock, seconds since the epoch.
        until: Not after that time, likewise.
    """

    type: str | None = None
    handle: str | None = None
    name: str | None = None
    holder: str | None = None
    since: float | None = None
    until: float | None = None

    def wants(self, event: Event) -> bool:
        """Tell whether an event is one of those."""
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
    """Events that were removed before somebody came to them who reads them one after the other.

    Args:
        number: How many, of all pools and backends; None where nobody knows, and perhaps none.
        until: When the first happened that is left, or later, wall clock; None for nothing is left.
        last_number: None of them has a larger number.
        is_restored: The store was restored from an older copy: its numbers went back to this one,
            and some of what has happened since has a smaller one.
    """

    number: int | None
    until: float | None
    last_number: int
    is_restored: bool = False
