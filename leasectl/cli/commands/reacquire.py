"""``leasectl reacquire``: give back what a handle holds and take the same again."""

from __future__ import annotations

from functools import partial
from typing import Any

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import plain_command
from leasectl.cli.rendering.handle_output import HandleForm, acquire_and_print
from leasectl.cli.rendering.output import emit, note
from leasectl.cli.rendering.waiting import WaitOptions
from leasectl.errors import LeaseError, LockHeld, NoLease, spares_optional
from leasectl.leases.acquire import reacquire
from leasectl.leases.paths import require_handle_at
from leasectl.system.signals import SignalTrap


@plain_command(options_metavar="H [OPTIONS]")
@options.handle
@options.wait_options
@options.quiet
@options.json_output
def command(*, handle: str, as_json: bool, **given: Any) -> None:
    """Release the lease of a handle and wait for a new one.

    The lease is released and the new request queued in one step. The handle stays the same, the
    new request goes to the end of the queue, and the time of --release-after starts again. Prints
    the handle's path. If no lease is granted, the handle is left empty and can be reacquired later;
    with --optional, its path is printed then, too.

    \b
    Example:
      leasectl reacquire "$h" -w 30m
    """
    form: HandleForm = "json" if as_json else "handle"
    waits = WaitOptions.pop(given)
    record = None
    waits.warn_of_endless_wait()
    try:
        with SignalTrap() as trap:
            service = open_service(for_handles=True, wait_seconds=waits.wait_seconds)
            with service.state.lock_limit.within_wait(waits.wait_seconds):
                record = require_handle_at(service, handle, done="reacquired")
            acquire_and_print(
                service,
                record.request,
                waits,
                partial(reacquire, service, record.id),
                at=service.at_backend_of(record),
                trap=trap,
                guard=record.guard,
                form=form,
            )
    except LeaseError as error:
        if isinstance(error, NoLease) and not isinstance(error, LockHeld):
            error.args = (f"{error}; the handle is empty now",)
        waits.set_exit_code(error)
        if not waits.optional or not spares_optional(error):
            raise
        note(f"continuing without a lease (--optional): {error}")
        if record is not None and not as_json:
            emit(f"{service.state.names_path(record.id)}\n")
