"""Who holds what, by the records, and whether anything will ever end it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.leases.recovery import is_abandoned, left
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state.handles import renews_itself
from leasectl.state.rows import is_on_record_elsewhere
from leasectl.system.process import own_pid_namespace
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted, listed

LONG_SECONDS = 24 * 3600.0


def dead_holders(service: Service) -> Finding:
    """Are there leases of those who have died?"""
    abandoned = [handle for handle in service.handles.active() if is_abandoned(service, handle)]
    if not abandoned:
        return Finding(OK, "none")
    return Finding(
        WARN,
        f"{counted(len(abandoned), 'handle')} of processes that have ended: {_ids(abandoned)}",
        "the keeper, or any next command, gives back what they hold",
        mend=lambda: _release(service, abandoned),
    )


def _release(service: Service, handles: Sequence[Handle]) -> str:
    names = [name for handle in handles for name in release(service, left(handle))]
    return f"gave back what they held: {listed(names) or 'nothing'}"


def unguarded(service: Service) -> Finding:
    """Which handles would nobody ever give back?"""
    active = service.handles.active()
    served = [handle for handle in active if handle.leases and is_on_record_elsewhere(handle)]
    of_clients = ""
    if served:
        of_clients = (
            f"; of {counted(len(served), 'handle')} that serve granted, the state directories of "
            "its clients know: leasectl doctor there"
        )
    forgotten = [
        handle
        for handle in active
        if handle.leases
        and handle not in served
        and handle.guard is None
        and handle.waiter is None
        and handle.release_at is None
        and (handle.request.ttl_seconds is None or renews_itself(handle))
    ]
    if not forgotten:
        every = "every lease has a guard, a release time, or a ttl that runs out"
        return Finding(OK, f"{every}{of_clients}")
    return Finding(
        WARN,
        f"{counted(len(forgotten), 'handle')} that only a release ends: {_held_texts(forgotten)}"
        f"{of_clients}",
        f"if nobody uses them any more: {_release_commands(forgotten)}",
    )


def foreign_guards(service: Service) -> Finding:
    """Which handles belong to processes that can't be seen from here?"""
    here = own_pid_namespace()
    from_elsewhere = [
        handle
        for handle in service.handles.active()
        if any(p and p.pid_namespace != here for p in (handle.guard, handle.waiter))
        and not is_abandoned(service, handle)
    ]
    if not from_elsewhere:
        return Finding(OK, "none in another pid namespace")
    return Finding(
        WARN,
        f"{counted(len(from_elsewhere), 'handle')} guarded in another pid namespace, which can't "
        f"be seen from here: {_held_texts(from_elsewhere)}",
        f"if that container has ended: {_release_commands(from_elsewhere)}",
    )


def held_for_long(service: Service) -> Finding:
    """Which handles have been held for suspiciously long?"""
    since = time.time() - LONG_SECONDS
    old = [
        handle
        for handle in service.handles.active()
        if any(lease.acquire_time < since for lease in handle.leases)
    ]
    day = format_duration(LONG_SECONDS)
    if not old:
        return Finding(OK, f"none for more than {day}")
    return Finding(
        WARN,
        f"{counted(len(old), 'handle')} held for more than {day}: {_held_texts(old)}",
        f"if nobody uses them any more: {_release_commands(old)}",
    )


def _ids(handles: Sequence[Handle]) -> str:
    return listed([handle.id for handle in handles])


def _held_texts(handles: Sequence[Handle]) -> str:
    now = time.time()
    return listed([f"{handle.id} ({_names(handle)}{_age(handle, now)})" for handle in handles])


def _names(handle: Handle) -> str:
    return listed(handle.names) or handle.state


def _age(handle: Handle, now: float) -> str:
    since = min((lease.acquire_time for lease in handle.leases), default=None)
    return "" if since is None else f", held for {format_duration(max(0.0, now - since))}"


def _release_commands(handles: Sequence[Handle]) -> str:
    return listed([f"leasectl release --handle {handle.id}" for handle in handles])
