"""The status of a backend, whatever the backend can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Union

from leasectl.errors import BackendUnreachable, NotSupported
from leasectl.leases.service import Service
from leasectl.pools import admin
from leasectl.pools.counted import Counts, count
from leasectl.pools.overview import ALL_ROWS, Overview, Rows
from leasectl.pools.overview_json import (
    AsList,
    are_counts,
    encode_counts,
    encode_overview,
    parse_counts,
)
from leasectl.system.clock import boottime_seconds, rfc3339
from leasectl.system.poll import Interrupt, pause

_LOOK_SECONDS = 2.0
# A server that only counts goes through all that it has each time that it is asked.
_COUNT_SECONDS = 5.0
_LOOK_HERE_SECONDS = 0.2


class HeldHere(NamedTuple):
    """A handle that isn't released.

    Args:
        handle: Its id.
        type: Of its leases, or the first that it asks for.
        state: ``held``, or ``acquiring`` while it waits.
        names: The resources that it has so far.
        since: Since when, wall clock, seconds since the epoch; None while it has none.
        release_time: When it will be released, on the same clock; None for never.
        guard_pid: The process whose end releases it; None without one.
    """

    handle: str
    type: str
    state: str
    names: tuple[str, ...]
    since: float | None
    release_time: float | None
    guard_pid: int | None


class HandlesHere(NamedTuple):
    """What handles of a state directory hold on a backend that doesn't tell.

    Args:
        backend: Its URL.
        at: When this was so, wall clock, seconds since the epoch.
        handles: In the order of their ids.
    """

    backend: str
    at: float
    handles: tuple[HeldHere, ...]

    def timeless(self) -> HandlesHere:
        """The same without what changes only because time passes."""
        # A release time is found by two clocks that aren't read at once.
        handles = [
            each
            if each.release_time is None
            else each._replace(release_time=round(each.release_time))
            for each in self.handles
        ]
        return self._replace(at=0.0, handles=tuple(handles))


Status = Union[Overview, Counts, HandlesHere]


def read_status(
    service: Service,
    pool_type: str | None,
    rows: Rows = ALL_ROWS,
    *,
    interrupts: Sequence[Interrupt] = (),
) -> Status:
    """Return what a backend tells of its pools, else what handles here hold there.

    Args:
        service: On the backend.
        pool_type: The pool; None for all.
        rows: What to list of the pools.
        interrupts: What ends a slow look sooner, with whatever they raise.

    Raises:
        NotFound: No such pool.
        LeaseError: The backend can't be asked now.
    """
    if service.kind.counts_types:
        return count(service, pool_type, interrupts=interrupts)
    try:
        told = service.kind.status(service.context, pool_type)
    except NotSupported:
        return _handles_here(service, pool_type)
    if told is not None and are_counts(told):
        return parse_counts(told, backend=service.backend_url)
    return admin.overview(service, pool_type, told=told).listing(rows)


def watch(
    service: Service, pool_type: str | None, rows: Rows, *, interrupts: Sequence[Interrupt]
) -> Iterator[tuple[Status | BackendUnreachable, bool]]:
    """Look at a status every two seconds, and when the records here change.

    Args:
        service: On the backend.
        pool_type: See `read_status`.
        rows: See `read_status`.
        interrupts: What ends it, with whatever they raise.

    Yields:
        The status, or why the server can't be asked now; and whether anything but the time has
        changed since the look before.

    Raises:
        LeaseError: The first look has failed.
    """
    found: Status | BackendUnreachable | None = None
    while True:
        before = found
        try:
            found = read_status(service, pool_type, rows, interrupts=interrupts)
        except BackendUnreachable as error:
            if before is None:
                raise
            found = error
        yield found, _timeless(found) != _timeless(before)
        _sleep(service, interrupts, is_counted=isinstance(found, Counts))


def _timeless(status: Status | BackendUnreachable | None) -> object:
    """Return a status without what changes only because time passes."""
    if isinstance(status, Counts):
        return status._replace(at=0.0)
    return status.timeless() if isinstance(status, (Overview, HandlesHere)) else None


def _sleep(service: Service, interrupts: Sequence[Interrupt], *, is_counted: bool) -> None:
    """Sleep until it is time to look again, or another process has changed the records."""
    if is_counted:
        pause(_COUNT_SECONDS, interrupts)
        return
    before, until = service.state.data_version(), boottime_seconds() + _LOOK_SECONDS
    while boottime_seconds() < until and service.state.data_version() == before:
        pause(_LOOK_HERE_SECONDS, interrupts)


def encode_status(status: Status, *, as_list: AsList = list) -> dict[str, object]:
    """Encode a status as the JSON of ``leasectl status``; see `encode_overview`."""
    if isinstance(status, Overview):
        return encode_overview(status, as_list=as_list)
    if isinstance(status, Counts):
        return encode_counts(status)
    handles = [
        {
            **each._asdict(),
            "since": rfc3339(each.since),
            "release_time": rfc3339(each.release_time),
        }
        for each in status.handles
    ]
    return {"backend": status.backend, "at": rfc3339(status.at), "handles": handles}


def _handles_here(service: Service, pool_type: str | None) -> HandlesHere:
    found = []
    wall, elapsed = service.clock.wall(), service.clock.elapsed()
    for handle in service.handles.active():
        of = handle.type or handle.request.type
        if not service.is_here(handle) or pool_type not in (None, of):
            continue
        due = handle.release_at
        found.append(
            HeldHere(
                handle.id,
                of,
                handle.state,
                handle.names,
                min((each.acquire_time for each in handle.leases), default=None),
                None if due is None else wall + due - elapsed,
                None if handle.guard is None else handle.guard.pid,
            )
        )
    return HandlesHere(service.backend_url, wall, tuple(sorted(found)))
