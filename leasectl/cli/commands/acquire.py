"""``leasectl acquire``: take leases and print the handle."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from leasectl.backends.kinds import kind_of
from leasectl.cli import options
from leasectl.cli.context import check_request, may_do_without, open_service
from leasectl.cli.described import OneOf, form_of, option, plain_command
from leasectl.cli.rendering.handle_output import HandleForm, acquire_and_print, print_failure
from leasectl.cli.rendering.output import note
from leasectl.cli.rendering.waiting import WaitOptions
from leasectl.errors import InvalidRequest, LeaseError, spares_optional
from leasectl.leases.acquire import acquire
from leasectl.leases.opening import (
    choose_backend,
    default_priority,
    guard_of_step,
    process_named_by,
)
from leasectl.leases.request import make_request
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, Scope
from leasectl.system.signals import SignalTrap


@plain_command(options_metavar="POOL [OPTIONS]")
@options.request_options
@options.wait_options
@option(
    "--scope [step|test]",
    "step: the lease belongs to one step of the job. test: later steps can use it; its "
    "resources are also listed in $SHARED_DIR/leases, which the steps of a job share.",
    group="End of the lease",
    default="step",
    show_default=True,
)
@option(
    "--guard-pid PID",
    "Release the lease when this process ends; in a script, use $$. Default: no guard.",
    group="End of the lease",
)
# For the Bash functions: --guard-pid, but over a lease proxy it ends only the wait. There a step
# may copy its handle into SHARED_DIR and end, and a later one releases it.
@option("--step-pid PID", hidden=True)
@option(
    "-o, --output FORM",
    "handle: path of the handle (default); names: names of the resources, one per line; csv: "
    "these names in one line; json: all facts; env: shell code for eval that exports "
    "LEASECTL_HANDLE, LEASECTL_NAMES and others, as under run; if no lease was granted, eval "
    "returns acquire's exit code.",
    type=OneOf(("handle", "names", "csv", "json", "env")),
    group="Output",
)
@options.json_output
@options.quiet
@options.backend
def command(
    *,
    scope: Scope,
    guard_pid: int | None,
    step_pid: int | None,
    output: HandleForm | None,
    as_json: bool,
    backend: str | None,
    **wanted: Any,
) -> None:
    """Wait for a lease and print the path of its handle.

    Requests are served by priority, then in order of arrival. Pass the handle to release,
    reacquire, renew and cat. Without --guard-pid, --release-after or --ttl the lease is held until
    you release it.

    \b
    Example:
      h=$(leasectl acquire azure--install -w 2h --release-after 20m \\
        --guard-pid $$)
      openshift-install create cluster
      leasectl release --handle "$h"
    """
    waits = WaitOptions.pop(wanted)
    if wanted["priority"] is None:
        wanted["priority"] = default_priority(backend, waits.tell)
    request = make_request(scope=scope, **wanted)
    form: HandleForm = form_of("--output", output, "handle", as_json=as_json)
    pid = step_pid if guard_pid is None else guard_pid
    if scope == "test" and pid is not None:
        raise InvalidRequest(
            "--guard-pid can't be combined with --scope test, whose lease outlives the step"
        )
    try:
        guard = script = None if pid is None else process_named_by("--guard-pid", pid)
        if guard is not None and guard_pid is None:
            guard = guard_of_step(guard, backend)
        if request.on_reclaim == "release" and guard is None:
            _warn_of_no_answer(request, backend, waits.tell)
        if waits.optional:
            check_request(request, waits.wait_seconds, backend)
            waits.warn_of_endless_wait()
        with SignalTrap() as trap:
            service = open_service(backend, wait_seconds=waits.wait_seconds)

            handle = acquire_and_print(
                service,
                request,
                waits,
                partial(acquire, service, request, guard=guard, listed=True),
                at=service,
                trap=trap,
                guard=script,
                form=form,
            )
            if guard is None and scope == "step" and not waits.quiet and sys.stderr.isatty():
                _tell_how_it_ends(service, handle)
    except LeaseError as error:
        if spares_optional(error) and may_do_without(backend, optional=waits.optional):
            note(f"continuing without a lease (--optional): {error}")
            if form == "env":
                print_failure(0)
            return
        waits.set_exit_code(error)
        raise


def _tell_how_it_ends(service: Service, handle: Handle) -> None:
    """Tell a person at a terminal that only a release ends the lease."""
    request = handle.request
    if request.release_after_seconds is None and request.ttl_seconds is None:
        note(f"held until released with: leasectl release {service.state.names_path(handle.id)}")


def _warn_of_no_answer(request: Request, backend: str | None, tell: Callable[[str], None]) -> None:
    """Warn that --on-reclaim has no effect, because no process would answer."""
    kind = kind_of(choose_backend(backend).url)
    if request.ttl_seconds is None or not (kind.remote and kind.has_pools):
        return  # the keeper answers, or whoever asks finds the records
    do = "have the script run leasectl marks and leasectl answer"
    if request.scope == "step":
        do = f"give --guard-pid, leave out --ttl, or {do}"
    why = "with --ttl and no guard no process answers a reclaim"
    tell(f"{why}, so --on-reclaim has no effect; {do}")
