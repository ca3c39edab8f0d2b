"""A handle, in each output format."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal

from leasectl.cli.rendering.output import emit, emit_json, emit_lines, note
from leasectl.cli.rendering.waiting import Waiting, WaitOptions, interrupts
from leasectl.errors import LeaseError
from leasectl.leases.acquire import announce, take_back
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request
from leasectl.system.clock import boottime_seconds, earliest, rfc3339
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import draw_between
from leasectl.text.wording import followed_by

if TYPE_CHECKING:
    from leasectl.engines.rules.membership import Properties

# Beside the properties of the resources.
_EXPORTED = ("LEASECTL_HANDLE", "LEASECTL_NAMES", "LEASECTL_TYPE", "LEASECTL_FENCE")

HandleForm = Literal["handle", "names", "csv", "json", "env"]


def print_and_announce(
    service: Service, handle: Handle, trap: SignalTrap, form: HandleForm = "handle"
) -> None:
    """Print what was had, and only then let it outlive this process; else give it back."""
    try:
        trap.check()
        if service.kind_of(handle).grants_nothing:
            note(f"dry run (backend {handle.backend}): nothing is leased")
        print_handle(service, handle, form)
        announce(service, handle)
    except BaseException:
        take_back(service, handle)
        raise


def acquire_and_print(
    service: Service,
    request: Request,
    options: WaitOptions,
    acquire: Callable[..., Handle],
    *,
    at: Service,
    trap: SignalTrap,
    guard: Process | None,
    form: HandleForm,
) -> Handle:
    """Wait for a lease and print its handle; with --start-jitter, hold it back first.

    Args:
        service: On the state directory.
        request: What is waited for.
        options: How to wait.
        acquire: Acquires the lease, given what to wait with and the seconds to hold it back.
        at: On the backend of the lease.
        trap: Of the signals that end the wait, or give the lease back while it isn't printed.
        guard: The process whose end ends the wait; None for those that called this one.
        form: How to print the handle.
    """
    ends = interrupts(trap, guard)
    options.sleep_jitter(ends)
    start_delay = draw_between(0.0, options.start_jitter_seconds)
    within_wait = service.state.lock_limit.within_wait
    with within_wait(options.wait_seconds):
        with Waiting(request, options, ends, lambda: at) as waiting:
            handle = acquire(patience=waiting.patience, start_delay_seconds=start_delay)
            waiting.got(handle, start_delay)
        if not start_delay:
            print_and_announce(service, handle, trap, form)
            return handle
    from leasectl.run.start_delay import hold_back

    try:
        hold_back(service, handle, start_delay, ends)
    except BaseException:
        take_back(service, handle)
        raise
    with within_wait(options.wait_seconds):  # that of the wait is over
        print_and_announce(service, handle._replace(runner=None), trap, form)
    return handle


def print_handle(service: Service, handle: Handle, form: HandleForm) -> None:
    """Print a handle: its path, what it holds, all that is known of it, or lines for ``eval``."""
    path = service.state.names_path(handle.id)
    if form == "handle":
        emit(f"{path}\n")
    elif form == "names":
        emit_lines(handle.names)
    elif form == "csv":
        emit(",".join(handle.names) + "\n")
    elif form == "json":
        print_handle_json(service, handle)
    else:
        import shlex

        variables = {
            "LEASECTL_HANDLE": path,
            "LEASECTL_NAMES": ",".join(handle.names),
            "LEASECTL_TYPE": ",".join(handle.leased_types),
            "LEASECTL_FENCE": ",".join(handle.fences),
            **_property_variables(service, handle),
        }
        exports = tuple(f"export {k}={v and shlex.quote(v)}" for k, v in variables.items())
        emit_lines((*_unset_lines(but=variables), *exports))


def print_failure(code: int) -> None:
    """Print what makes ``eval`` return a code where it was to export a lease, and unset an earlier.

    Args:
        code: Exit code of this command; 0 where the script goes on without a lease.
    """
    emit_lines((*_unset_lines(), *([f"(exit {code})"] if code else [])))


def _unset_lines(but: Collection[str] = ()) -> tuple[str, ...]:
    """Lines for ``eval`` that unset what an earlier lease has exported."""
    from leasectl.leases.properties import is_variable

    stale = [
        name
        for name in os.environ
        if (name in _EXPORTED or is_variable(name)) and name not in but and name.isidentifier()
    ]
    return (f"unset {' '.join(stale)}",) if stale else ()


def _property_variables(service: Service, handle: Handle) -> Mapping[str, str]:
    from leasectl.leases.properties import property_variables  # for this form alone

    found = property_variables(service, handle)
    for each in found.warnings:
        note(each)
    return found.values


def _properties(service: Service, handle: Handle) -> Mapping[str, Properties] | None:
    """What the resources of a handle are; None where that can't be told now, which is said."""
    from leasectl.leases.properties import properties_of

    try:
        return properties_of(service, handle)
    except LeaseError as error:
        note(followed_by(error, '"properties" are null'))
        return None


def print_handle_json(service: Service, handle: Handle) -> None:
    """Print all that is known of a handle."""
    from leasectl.pools.overview_json import lease_spec
    from leasectl.state.rows import without_keys
    from leasectl.state.uses import Uses
    from leasectl.text.properties import written

    in_use = Uses(service.state).in_use(handle)
    properties = _properties(service, handle)
    releases = service.handles.timers.of_names()
    booted_at = time.time() - boottime_seconds()

    def when(due: float | None) -> str | None:
        return None if due is None else rfc3339(booted_at + due)

    release_at = when(handle.release_at)
    guard_pid = handle.guard.pid if handle.guard else None
    emit_json(
        {
            "handle": service.state.names_path(handle.id),
            "backend": handle.backend,
            "type": handle.type,
            "types": handle.request.types,
            "each": handle.request.needs_all,
            "count": handle.request.count,
            "scope": handle.request.scope,
            "priority": handle.request.priority,
            "where": written(handle.request.where),
            "on_reclaim": handle.request.on_reclaim,
            "state": handle.state,
            "acquisition": handle.acquisition,
            "release_at": release_at,
            "release_time": release_at,  # as `status` called it, for programs of before
            "leases": [
                {
                    "name": lease.name,
                    **lease_spec(lease),
                    "guard_pid": guard_pid,
                    "release_at": when(
                        earliest(handle.release_at, releases.get((handle.id, lease.name)))
                    ),
                    "labels": dict(without_keys(lease.labels)),
                    "properties": None if properties is None else dict(properties[lease.name]),
                    "in_use": lease.name in in_use,
                }
                for lease in handle.leases
            ],
        }
    )
