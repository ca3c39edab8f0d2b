"""``leasectl reacquire``: give back what a handle holds and take the same again."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.context import no_handle_of_ours, open_service
from leasectl.cli.described import plain_command
from leasectl.cli.rendering.handle_output import HandleForm, print_and_announce, print_later
from leasectl.cli.rendering.output import emit, note
from leasectl.cli.rendering.waiting import (
    interrupts,
    reported,
    sleep_jitter,
    warn_of_endless_wait,
)
from leasectl.errors import LeaseError, LockHeld, NoLease, spares_optional
from leasectl.leases.reacquire import reacquire
from leasectl.leases.request import draw_start_delay
from leasectl.leases.targets import Targets
from leasectl.system.signals import SignalTrap
from leasectl.text.wording import followed_by

EXAMPLE = """\b
Example:
  leasectl reacquire "$h" -w 30m
"""


@plain_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@options.wait
@options.connect_timeout
@options.conflict_exit_code
@options.optional
@options.jitter
@options.start_jitter
@options.quiet
@options.json_output
def command(
    *,
    handle: str,
    as_json: bool,
    wait_seconds: float | None,
    connect_seconds: float | None,
    conflict_code: int | None,
    optional: bool,
    jitter_seconds: float,
    start_jitter_seconds: float,
    quiet: bool,
) -> None:
    """Release the lease of a handle and wait for a new one.

    Both happen in one step. The handle stays the same, the new request goes to the end of the
    queue, and the time of --release-after starts again. Prints the handle's path. If no lease is
    granted, the handle is left empty and can be reacquired later; with --optional, its path is
    printed then, too.
    """
    form: HandleForm = "json" if as_json else "handle"
    record = None
    if optional:
        warn_of_endless_wait(wait_seconds, quiet=quiet)
    try:
        with SignalTrap() as trap:
            service = open_service(for_handles=True, wait_seconds=wait_seconds)
            with service.state.lock_limit.within_wait(wait_seconds):
                record = Targets(service).handle_at(handle)
            if record is None:
                raise no_handle_of_ours(handle, service, "reacquired")
            ends = interrupts(trap, record.guard)
            sleep_jitter(jitter_seconds, ends, quiet=quiet)
            start_delay = draw_start_delay(start_jitter_seconds)
            with service.state.lock_limit.within_wait(wait_seconds):
                with reported(
                    record.request,
                    wait_seconds,
                    ends,
                    service=lambda: service.at_backend_of(record),
                    quiet=quiet,
                    connect_seconds=connect_seconds,
                ) as waiting:
                    held = reacquire(
                        service,
                        record.id,
                        patience=waiting.patience,
                        start_delay_seconds=start_delay,
                    )
                    waiting.got(held, start_delay)
                if not start_delay:
                    print_and_announce(service, held, trap, form)
            if start_delay:
                print_later(
                    service,
                    held,
                    trap,
                    form,
                    seconds=start_delay,
                    interrupts=ends,
                    wait_seconds=wait_seconds,
                )
    except LeaseError as error:
        if isinstance(error, NoLease):
            if not isinstance(error, LockHeld):
                error.args = (f"{error}; the handle is empty now",)
            error.exit_code = error.exit_code if conflict_code is None else conflict_code
        if not optional or not spares_optional(error):
            raise
        note(followed_by(error, "continuing without a lease, because it is optional"))
        if record is not None and not as_json:
            emit(f"{service.state.names_path(record.id)}\n")
