"""Read events, from a backend or from JSON."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, get_args

from leasectl.engines.pool_admin import EventLog
from leasectl.errors import BackendUnreachable, CorruptState, InvalidRequest, LeaseError
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.state.event import Event, EventFilter, EventKind, Missed, number_of
from leasectl.system.clock import boottime_seconds, rfc3339
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
_ASK_AGAIN_SECONDS = 2.0


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


def so_far(log: EventLog, wanted: EventFilter, last: int | None) -> Iterator[Event]:
    """Return the events so far, the oldest first: the last so many; all for None."""
    return iter(log.read(wanted) if last is None else log.latest(wanted, last)[::-1])


def follow(
    log: EventLog,
    wanted: EventFilter,
    *,
    after: int | None = None,
    last: int | None = None,
    begun: Callable[[], object] = lambda: None,
    sleep: Callable[[tuple[int, ...], float | None, int], object],
    missed: Callable[[Missed, float], object],
    unreachable: Callable[[BackendUnreachable], object],
) -> Generator[list[Event], None, None]:
    """Yield each event, once and in order, until the caller closes the generator.

    While the server doesn't answer, it is asked again every two seconds.

    Args:
        log: The events.
        wanted: Which of them.
        after: Only those with a larger number than this; None to begin with events so far.
        last: Without ``after``, how many of these; None for all.
        begun: Called once these were yielded.
        sleep: Called with descriptors, a time of CLOCK_BOOTTIME and the number of the last event
            that was read; sleeps until a descriptor is readable, or until then. An error that it
            raises ends the generator.
        missed: Called when events were removed before they were read, or lost in a restore, with
            the wall clock of the last look.
        unreachable: Called once each time that the server stops answering.

    Yields:
        The events, as they come.

    Raises:
        BackendUnreachable: The events so far can't be read.
    """
    reached = log.last_number() if after is None else after  # first: none is left out in between
    if after is None:
        for piece in in_pieces(so_far(log, wanted, last)):
            reached = max(reached, *map(number_of, piece))
            yield piece
        begun()
    since, is_told, went_back = time.time(), False, False

    def pass_over(gone: Missed) -> None:
        nonlocal reached, went_back
        reached = gone.last_number if gone.is_restored else max(reached, gone.last_number)
        went_back = went_back or gone.is_restored
        missed(gone, since)

    while True:
        with contextlib.ExitStack() as stack:
            try:
                watch = log.watch()
                stack.callback(watch.close)
                while True:
                    newest, went_back = log.last_number(), False
                    for piece in in_pieces(log.read(wanted, after=reached, missed=pass_over)):
                        reached = max(reached, *map(number_of, piece))
                        yield piece
                        since, is_told = piece[-1].time, False
                    if not went_back:  # else it may be of the time before the restore
                        reached = max(reached, newest)  # the others needn't be looked at again
                    since = time.time()
                    sleep((watch.fd,), None, reached)
                    told = watch.clear()
                    if not went_back:
                        reached = max(reached, told)
            except BackendUnreachable as error:
                if not is_told:
                    unreachable(error)
                is_told = True
        sleep((), boottime_seconds() + _ASK_AGAIN_SECONDS, reached)


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
