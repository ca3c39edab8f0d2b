"""Who holds what, by the records, and whether anything will ever end it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.leases.recovery import is_abandoned, left
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state import singled_out
from leasectl.state.leftovers import ids_of_the_dead
from leasectl.system.process import own_pid_namespace
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted, listed, listed_as

LONG_SECONDS = 24 * 3600.0


def dead_holders(service: Service) -> Finding:
    """Are there leases of those who have died?"""
    some = map(service.handles.load, ids_of_the_dead(service.state))
    abandoned = [each for each in some if each and is_abandoned(service, each)]
    if not abandoned:
        return Finding(OK, "none")
    return Finding(
        WARN,
        f"{counted(len(abandoned), 'handle')} of processes that have ended: "
        f"{listed([each.id for each in abandoned])}",
        "the keeper, or any next command, gives back what they hold",
        mend=lambda: _release(service, abandoned),
    )


def _release(service: Service, handles: Sequence[Handle]) -> str:
    names = [name for handle in handles for name in release(service, left(handle))]
    return f"gave back what they held: {listed(names) or 'nothing'}"


def unguarded(service: Service) -> Finding:
    """Which handles would nobody ever give back?"""
    served = singled_out.on_record_elsewhere(service.state)
    of_clients = ""
    if served:
        of_clients = (
            f"; of {counted(served, 'handle')} that serve granted, the state directories of "
            "its clients know: leasectl doctor there"
        )
    forgotten = singled_out.never_ending(service.state)
    if not forgotten:
        every = "every lease has a guard, a release time, or a ttl that runs out"
        return Finding(OK, f"{every}{of_clients}")
    return Finding(
        WARN,
        f"{counted(len(forgotten), 'handle')} that only a release ends: "
        f"{_held_texts(service, forgotten)}{of_clients}",
        f"if nobody uses them any more: {_release_commands(forgotten)}",
    )


def foreign_guards(service: Service) -> Finding:
    """Which handles belong to processes that can't be seen from here?"""
    found = singled_out.of_other_namespaces(service.state, own_pid_namespace())
    some = map(service.handles.load, found)
    from_elsewhere = [each.id for each in some if each and not is_abandoned(service, each)]
    if not from_elsewhere:
        return Finding(OK, "none in another pid namespace")
    return Finding(
        WARN,
        f"{counted(len(from_elsewhere), 'handle')} guarded in another pid namespace, which can't "
        f"be seen from here: {_held_texts(service, from_elsewhere)}",
        f"if that container has ended: {_release_commands(from_elsewhere)}",
    )


def held_for_long(service: Service) -> Finding:
    """Which handles have been held for suspiciously long?"""
    old = singled_out.held_since_before(service.state, time.time() - LONG_SECONDS)
    day = format_duration(LONG_SECONDS)
    if not old:
        return Finding(OK, f"none for more than {day}")
    return Finding(
        WARN,
        f"{counted(len(old), 'handle')} held for more than {day}: {_held_texts(service, old)}",
        f"if nobody uses them any more: {_release_commands(old)}",
    )


def _held_texts(service: Service, handle_ids: Sequence[str]) -> str:
    now = time.time()

    def text(handle_id: str) -> str:
        handle = service.handles.load(handle_id)
        return handle_id if handle is None else f"{handle_id} ({_names(handle)}{_age(handle, now)})"

    return listed_as(handle_ids, text)


def _names(handle: Handle) -> str:
    return listed(handle.names) or handle.state


def _age(handle: Handle, now: float) -> str:
    since = min((lease.acquire_time for lease in handle.leases), default=None)
    return "" if since is None else f", held for {format_duration(max(0.0, now - since))}"


def _release_commands(handle_ids: Sequence[str]) -> str:
    return listed_as(handle_ids, lambda each: f"leasectl release --handle {each}")
