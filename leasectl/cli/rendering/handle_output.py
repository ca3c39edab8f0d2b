"""A handle, in each output format."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from leasectl.cli.rendering.output import emit, emit_json, emit_lines, note
from leasectl.cli.rendering.waiting import Waiting, WaitOptions, interrupts
from leasectl.leases.acquire import announce, take_back
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import draw_between

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


def print_handle_json(service: Service, handle: Handle) -> None:
    """Print all that is known of a handle."""
    from leasectl.pools.overview_json import encode_handle

    emit_json(encode_handle(service, handle))
