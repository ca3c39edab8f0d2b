"""``leasectl cat``: show what a handle holds."""

from __future__ import annotations

from typing import Literal

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import form_of, option, plain_command
from leasectl.cli.rendering.output import emit, emit_lines
from leasectl.errors import InvalidRequest, NotFound
from leasectl.leases.paths import handle_at, read_names
from leasectl.leases.service import lost_error
from leasectl.text.properties import check_key

NamesForm = Literal["plain", "csv", "json"]


@plain_command(options_metavar="H [OPTIONS]")
@options.handle
@option(
    "--format [plain|csv|json]",
    "plain, the default: one name per line; csv: one line; json: all facts about the handle.",
    to="form",
)
@option(
    "--property K",
    "Print this property of each resource instead of its name; exit with 66 if one lacks it.",
    to="key",
    type=check_key,
)
@options.json_output
def command(*, handle: str, form: NamesForm | None, key: str | None, as_json: bool) -> None:
    """Print the resources that a handle holds.

    Prints nothing for an empty handle. If the handle lost a lease, prints what is left and exits
    with 79.

    \b
    Examples:
      leasectl cat "$h" --format csv
      leasectl pool set azure--install --property region=eastus
      leasectl cat "$h" --property region
    """
    wanted: NamesForm = form_of("--format", form, "plain", as_json=as_json)
    if key is not None:
        if wanted != "plain":
            raise InvalidRequest("--property can't be combined with --format or --json")
        from leasectl.leases.properties import property_at

        emit_lines(property_at(open_service(for_handles=True), handle, key))
        return
    if not handle:
        return
    service = open_service(for_handles=True)
    record = handle_at(service, handle)
    if record is None and wanted == "json":
        raise NotFound(f"{handle} is a copy; use the handle itself, in {service.state.directory}")
    names = tuple(read_names(handle)) if record is None else record.names
    if record is not None and wanted == "json":
        from leasectl.cli.rendering.handle_output import print_handle_json

        print_handle_json(service, record)
    elif wanted == "csv":
        emit(",".join(names) + "\n" if names else "")
    else:
        emit_lines(names)
    if record is not None and record.lost:
        raise lost_error(record, service.state)
