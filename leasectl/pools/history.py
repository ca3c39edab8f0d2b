"""Read events, from a backend or from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, get_args

from leasectl.engines.pool_admin import EventLog
from leasectl.errors import BackendUnreachable, CorruptState, InvalidRequest, LeaseError
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.state.event import Event, EventFilter, EventKind, Missed, number_of
from leasectl.system.clock import rfc3339
from leasectl.text.durations import parse_moment
from leasectl.text.naming import as_given, escape_name
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_each,
    read_name,
    read_number,
    read_record,
    read_text,
)
from leasectl.text.wording import printable

_AT_ONCE = 1000


def put_right(service: Service, pool_type: str | None = None) -> None:
    """Free what has expired, as far as that can be done now, so that there are events of it.

    Args:
        service: On the backend.
        pool_type: Of one pool; None for all.

    Raises:
        BackendUnreachable: The server that has the events doesn't answer.
    """
    try:
        release_abandoned(service)
        service.pools.pools(pool_type)
    except BackendUnreachable:
        raise
    except LeaseError:
        pass  # they are told as they are


def in_pieces(events: Iterator[Event]) -> Iterator[list[Event]]:
    """The same events, many at once."""
    while True:
        piece = list(islice(events, _AT_ONCE))
        if not piece:
            return
        yield piece


def follow(
    log: EventLog,
    wanted: EventFilter,
    *,
    after: int,
    sleep: Callable[[int, int], None],
    missed: Callable[[Missed], None],
) -> Iterator[list[Event]]:
    """Yield each event from now on, once and in order, until the caller closes the generator.

    Args:
        log: The events.
        wanted: Which of them.
        after: Only those with a larger number than this.
        sleep: Called with a descriptor and the number of the last event that was read; sleeps until
            the descriptor is readable. An error that it raises ends the generator.
        missed: Called when events were removed before they were read, or lost in a restore.

    Yields:
        The events, as they come.
    """

    went_back = False

    def pass_over(gone: Missed) -> None:
        nonlocal after, went_back
        after = gone.last_number if gone.is_restored else max(after, gone.last_number)
        went_back = went_back or gone.is_restored
        missed(gone)

    watch = log.watch()
    try:
        while True:
            last, went_back = log.last_number(), False
            for piece in in_pieces(log.read(wanted, after=after, missed=pass_over)):
                after = max(after, *map(number_of, piece))
                yield piece
            if not went_back:  # else the last number may be of the time before the restore
                after = max(after, last)  # those that aren't wanted needn't be looked at again
            sleep(watch.fd, after)
            told = watch.clear()
            if not went_back:
                after = max(after, told)
    finally:
        watch.close()


def encode_event(event: Event) -> dict[str, Any]:
    """Write an event; `parse_event` reads it back, but for less than a microsecond."""
    return {
        **event._asdict(),
        "names": tuple(map(as_given, event.names)),  # those of a work are escaped
        "time": rfc3339(event.time),
        "wait_seconds": _rounded(event.wait_seconds),
        "hold_seconds": _rounded(event.hold_seconds),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def parse_event(line: str) -> Event:
    """Read one line.

    Raises:
        CorruptState: It is none that `encode_event` has written.
    """
    try:
        fields = json.loads(line)
        is_of_work = str(fields["kind"]).startswith("work ")
        names = partial(read_each, _read_of_work if is_of_work else read_name)
        event: Event = read_record(Event, {**_READERS, "names": names}, fields)
        return event
    except (*MALFORMED, InvalidRequest) as error:
        raise CorruptState(f'not an event: "{printable(line)}" ({error})') from error


def _read_kind(value: object) -> str:
    if not isinstance(value, str) or value not in get_args(EventKind):
        raise Malformed("no such kind")
    return value


def _read_of_work(value: object) -> str:
    text = read_text(value)
    if not text:
        raise Malformed("a key is empty")
    return escape_name(text)


_READERS: dict[str, Callable[[Any], object]] = {
    "number": int,
    "time": lambda text: parse_moment(read_text(text), 0.0),
    "kind": _read_kind,
    "type": read_name,
    "fences": partial(read_each, int),
    "handle": read_text,
    "acquisition": int,
    "holder_identity": read_text,
    "count": int,
    "priority": int,
    "ticket": int,
    "grant": int,
    "wait_seconds": read_number,
    "hold_seconds": read_number,
    "by": read_text,
    "reason": read_text,
    "build_url": read_text,
}
