"""``leasectl use|unuse|marks|answer``: the holder's side of a reclaim."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import no_handle_of_ours, open_service
from leasectl.cli.described import flag, option
from leasectl.cli.rendering.output import emit_json, emit_lines, note, show, show_json
from leasectl.cli.rendering.table import Column, number, output_width, table
from leasectl.errors import InvalidRequest, NotAllowed
from leasectl.leases.marks import Answered, Asked, answer, asked_of, unuse, use
from leasectl.leases.paths import handle_at, read_names
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.naming import check_name

held_name = option(
    "--name",
    required=True,
    type=check_name,
    metavar="NAME",
    shell_complete=options.completing("held_names"),
    help="A resource that H holds.",
)


def held_handles(service: Service, path: str, done: str) -> list[Handle]:
    """Return the handle that a path means; for a copy, the handles that hold its names here.

    Args:
        service: On the state directory.
        path: As given; an empty one means no handle.
        done: What is to be done with it, for the error.

    Raises:
        NotFound: There is no such handle, or nothing that the copy lists is held here.
    """
    if not path:
        return []
    record = handle_at(service, path)
    if record is not None:
        return [record]
    names = read_names(path)
    holders = [service.handles.holding(name, prefer=service.is_here) for name in names]
    found = {holder.id: holder for holder in holders if holder is not None}
    if names and not found:
        raise no_handle_of_ours(path, service, done)
    return list(found.values())


def handle_with(service: Service, path: str, name: str, done: str) -> Handle:
    """Return the one of `held_handles` that holds a name; the first if none does.

    Raises:
        NotFound: As `held_handles`.
        NotAllowed: There is no handle.
    """
    handles = held_handles(service, path, done)
    if not handles:
        raise NotAllowed(f"empty handle: nothing can be {done}")
    return next((each for each in handles if name in each.names), handles[0])


_USE_EXAMPLE = """\b
Example:
  leasectl use "$h" --name "$(leasectl cat "$h")"
"""


@new_command(epilog=_USE_EXAMPLE, options_metavar="H --name NAME")
@options.handle
@held_name
def use_command(*, handle: str, name: str) -> None:
    """Mark a held resource as in use.

    A reclaim doesn't take a resource in use. A resource that was answered ready can't be used (77)
    until its mark has gone. No server is asked. Uses aren't counted: one unuse ends them all. A
    release, also by a timer, a guard or --force, ends the use.
    """
    service = open_service(for_handles=True)
    use(service, whole(handle_with(service, handle, name, "used")), name)


_UNUSE_EXAMPLE = """\b
Example:
  leasectl unuse "$h" --name "$(leasectl cat "$h")"
"""


@new_command(epilog=_UNUSE_EXAMPLE, options_metavar="H --name NAME")
@options.handle
@held_name
def unuse_command(*, handle: str, name: str) -> None:
    """Mark a held resource as no longer in use."""
    service = open_service(for_handles=True)
    unuse(service, whole(handle_with(service, handle, name, "used")), name)


_MARKS_EXAMPLE = """\b
Example:
  leasectl marks "$h"
"""

_COLUMNS = (
    Column("NAME", shrinks=2),
    Column("STATE"),
    Column("IN USE"),
    number("ENDS IN"),
    Column("ASKED BY", shrinks=1),
)


@new_command(epilog=_MARKS_EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@options.json_output
def marks_command(*, handle: str, as_json: bool) -> None:
    """Show the pending reclaim requests for a handle.

    marked: waits for an answer; ready: can be taken, and can't be used; keep: isn't taken. A mark
    expires; a ready resource can be used again then.
    """
    service = open_service(for_handles=True)
    asked = [
        each
        for record in held_handles(service, handle, "looked at")
        for each in asked_of(service, whole(record))
    ]
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


_ANSWER_EXAMPLE = """\b
Example:
  leasectl answer "$h" --ready
"""


@new_command(epilog=_ANSWER_EXAMPLE, options_metavar="H (--ready | --keep) [OPTIONS]")
@options.handle
@flag("--ready", help="Give the leases back; from now on they can't be used.")
@flag("--keep", help="Keep the leases; this is final for this request.")
@option(
    "-n",
    "--names",
    type=options.name_list,
    metavar="A,B",
    shell_complete=options.completing("held_names", is_list=True),
    help="Answer for these names. Default: all without an answer that aren't in use.",
)
@options.json_output
def answer_command(
    *, handle: str, ready: bool, keep: bool, names: tuple[str, ...] | None, as_json: bool
) -> None:
    """Answer a reclaim request and print the names of its resources.

    For scripts that decide for themselves: acquire with --on-reclaim answer, and look for requests
    with leasectl marks. A name in use can't become ready (77).
    """
    if ready == keep:
        raise InvalidRequest("say what to answer: --ready or --keep")
    said: Answered = "ready" if ready else "keep"
    service = open_service(for_handles=True)
    answered: list[str] = []
    records = held_handles(service, handle, "answered for")
    for record in records:
        wanted = names
        if names is not None and len(records) > 1:  # a copy of what several hold
            wanted = tuple(name for name in names if name in record.names)
        answered += answer(service, whole(record), said, wanted)
    if as_json:
        emit_json({"answered": said, "names": answered})
    else:
        emit_lines(tuple(answered))
    if not answered:
        note("no request waits for an answer; see: leasectl marks --handle H")
