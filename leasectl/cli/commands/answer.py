"""``leasectl answer``: say whether what somebody wants back can be taken."""

from __future__ import annotations

from leasectl.cli import options
from leasectl.cli.command import new_handle_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.held_handles import complete_held_names, held_handles
from leasectl.cli.shown.output import emit_json, emit_lines, note
from leasectl.errors import InvalidRequest
from leasectl.leases.answer import answer
from leasectl.leases.marks import Answered
from leasectl.model import whole

EXAMPLE = """\b
Example:
  leasectl answer "$h" --ready
"""


@new_handle_command(epilog=EXAMPLE, options_metavar="H (--ready | --keep) [OPTIONS]")
@options.handle
@option("--ready", is_flag=True, help="It can be taken; from now on it can't be used.")
@option("--keep", is_flag=True, help="It can't be taken; that is the last word on this mark.")
@option(
    "-n",
    "--names",
    type=options.name_list,
    metavar="A,B",
    shell_complete=complete_held_names,
    help="Of what; default: all that has no answer yet and isn't in use.",
)
@options.json_output
def command(
    *, handle: str, ready: bool, keep: bool, names: tuple[str, ...] | None, as_json: bool
) -> None:
    """Answer a reclaim that asks, and print the names answered.

    For scripts that decide for themselves: acquire with --on-reclaim answer, see what is asked for
    with leasectl marks. What is in use can't be ready (77).
    """
    if ready == keep:
        raise InvalidRequest("say what to answer: one of --ready or --keep")
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
        note("nothing that isn't in use waits for an answer; see: leasectl marks --handle H")
