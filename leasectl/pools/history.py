"""What happened on a backend: its events, and those that are still to come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from leasectl.engines.event_log import EventLog
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed, number_of
from leasectl.typed.hints import Callable

_AT_ONCE = 1000


def events_of(
    service: Service, wanted: EventFilter = ALL_EVENTS, *, after: int = 0
) -> Iterator[Event]:
    """The events of the chosen backend that are still kept, the oldest first.

    Where a backend has no pools of its own, they are those of this state directory's handles on it.

    Args:
        service: On the backend.
        wanted: Which of them.
        after: Only those with a larger number than this.

    Raises:
        NotSupported: Nobody writes them down there.
    """
    return service.events.read(wanted, after=after)


def put_right(service: Service, pool_type: str | None = None) -> None:
    """Have what is over be over, as far as that can be done now, so that events tell of it.

    Args:
        service: On the backend.
        pool_type: Of one pool; None for all.

    Raises:
        BackendUnreachable: Nobody is there who could tell of events either.
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
    """Each event from now on, once and in order; whoever closes this has it watch no longer.

    Args:
        log: The events.
        wanted: Which of them.
        after: Only those with a larger number than this.
        sleep: Given a descriptor, sleeps until it can be read; and the number up to which all was
            read. Whatever it raises ends this.
        missed: Called when some were removed before they were read.

    Yields:
        Those that have come, as they come.
    """

    def pass_over(gone: Missed) -> None:
        nonlocal after
        after = max(after, gone.last_number)
        missed(gone)

    watch = log.watch()
    try:
        while True:
            last = log.last_number()
            for piece in in_pieces(log.read(wanted, after=after, missed=pass_over)):
                after = max(after, *map(number_of, piece))
                yield piece
            after = max(after, last)  # those that aren't wanted needn't be looked at again
            sleep(watch.fd, after)
            after = max(after, watch.clear())
    finally:
        watch.close()
