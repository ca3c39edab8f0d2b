"""``leasectl use|unuse|marks|answer``: the holder's side of a reclaim."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.rendering.output import emit_json, emit_lines, note, show, show_json
from leasectl.cli.rendering.table import Column, number, output_width, table
from leasectl.errors import InvalidRequest
from leasectl.leases.marks import Answered, Asked, answer_at, asked_of, unuse, use
from leasectl.leases.paths import handle_with, handles_at
from leasectl.leases.service import Service
from leasectl.model import whole
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration

held_name = option(
    "--name NAME", "A resource that H holds.", completed_from="held_names", required=True
)


@new_command(options_metavar="H --name NAME")
@options.handle
@held_name
def use_command(*, handle: str, name: str) -> None:
    """Record that a held resource is in use.

    A reclaim doesn't take a resource in use. A resource for which a reclaim was answered "ready"
    can't be used (77) until that request has expired. The use is recorded on this machine only, so
    this works while a server is away. However often a use was recorded, one unuse ends it. So does
    a release, also by a timer, a guard or --force.

    \b
    Example:
      leasectl use "$h" --name "$(leasectl cat "$h")"
    """
    service = open_service(for_handles=True)
    use(service, whole(handle_with(service, handle, name)), name)


@new_command(options_metavar="H --name NAME")
@options.handle
@held_name
def unuse_command(*, handle: str, name: str) -> None:
    """Record that a held resource is no longer in use.

    \b
    Example:
      leasectl unuse "$h" --name "$(leasectl cat "$h")"
    """
    service = open_service(for_handles=True)
    unuse(service, whole(handle_with(service, handle, name)), name)


_COLUMNS = (
    Column("NAME", shrinks=2),
    Column("STATE"),
    Column("IN USE"),
    number("ENDS IN"),
    Column("ASKED BY", shrinks=1),
)


@new_command(options_metavar="H [OPTIONS]")
@options.handle
@options.json_output
def marks_command(*, handle: str, as_json: bool) -> None:
    """Show the pending reclaim requests for a handle.

    marked: the reclaim waits for your answer; ready: the reclaim may take the lease, which can't be
    used; keep: you keep it. When a mark expires, a ready resource can be used again.

    \b
    Example:
      leasectl marks "$h"
    """
    service = open_service(for_handles=True)
    asked = _asked(service, handle)
    now = service.clock.elapsed()
    if as_json:
        show_json([_facts(each, now) for each in asked])
        return
    rows = [
        (
            each.name,
            each.mark.state,
            "yes" if each.is_in_use else "no",
            format_duration(max(0.0, each.ends_at - now)),
            each.mark.asked_by,
        )
        for each in asked
    ]
    if rows:
        show(table(_COLUMNS, rows, output_width()).text)
    else:
        note("no reclaim asks for this handle's leases")


def _asked(service: Service, handle: str) -> list[Asked]:
    return [
        each
        for record in handles_at(service, handle, done="looked at")
        for each in asked_of(service, whole(record))
    ]


def _facts(asked: Asked, now: float) -> dict[str, object]:
    return {
        "name": asked.name,
        "state": asked.mark.state,
        "in_use": asked.is_in_use,
        "ends_in_seconds": round(max(0.0, asked.ends_at - now), 3),
        "asked_by": asked.mark.asked_by,
        "asked_at": rfc3339(asked.mark.made_at),
        "fence": asked.note.fence,
    }


@new_command(options_metavar="H (--ready | --keep) [OPTIONS]")
@options.handle
@option("--ready", "Give the leases back; from now on they can't be used.")
@option(
    "--keep", "Keep the leases. This can't be changed to --ready, unless the reclaim asks again."
)
@option(
    "-n, --names A,B",
    "Answer for these names. Default: all that are asked for, not in use, and not answered yet.",
    type=options.name_list,
    completed_from="held_names",
)
@options.json_output
def answer_command(
    *, handle: str, ready: bool, keep: bool, names: tuple[str, ...] | None, as_json: bool
) -> None:
    """Answer a reclaim request and print the names of its resources.

    For scripts that decide for themselves: acquire with --on-reclaim answer, and look for requests
    with leasectl marks. A name in use can't become ready (77).

    \b
    Example:
      leasectl answer "$h" --ready
    """
    if ready == keep:
        raise InvalidRequest("say what to answer: --ready or --keep")
    said: Answered = "ready" if ready else "keep"
    service = open_service(for_handles=True)
    answered = answer_at(service, handle, said, names)
    if as_json:
        emit_json({"answered": said, "names": answered})
    else:
        emit_lines(answered)
    if not answered:
        if _asked(service, handle):
            why = "nothing answered: the names asked for are in use or answered already"
        else:
            why = "no request waits for an answer"
        note(f"{why}; see: leasectl marks --handle H")
