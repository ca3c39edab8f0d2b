"""``leasectl cat``: show what a handle holds."""

from __future__ import annotations

from typing import Literal

import click

from leasectl.cli import options
from leasectl.cli.command import as_json_only, new_handle_command, option
from leasectl.cli.context import open_service
from leasectl.cli.handle_output import print_handle_json
from leasectl.cli.output import emit, emit_lines
from leasectl.errors import NotFound
from leasectl.leases.targets import Targets, read_names

NamesForm = Literal["plain", "csv", "json"]

EXAMPLE = """\b
Example:
  leasectl cat "$h" --format csv
"""


@new_handle_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@option(
    "--format",
    "form",
    type=click.Choice(["plain", "csv", "json"]),
    default="plain",
    show_default=True,
    help="plain: a name a line; csv: one line; json: all that is known of the handle.",
)
@options.json_output
def command(*, handle: str, form: NamesForm, as_json: bool) -> None:
    """Print what a handle holds now; nothing if it holds nothing."""
    if as_json:
        form = as_json_only("form", "--format", form)
    if not handle:
        return
    service = open_service(for_handles=True)
    record = Targets(service).handle_at(handle)
    if record is None and form == "json":
        raise NotFound(
            f"{handle} is a copy: the handles themselves are in {service.state.directory}"
        )
    names = tuple(read_names(handle)) if record is None else record.names
    if record is not None and form == "json":
        print_handle_json(service, record)
    elif form == "csv":
        emit(",".join(names) + "\n" if names else "")
    else:
        emit_lines(names)
