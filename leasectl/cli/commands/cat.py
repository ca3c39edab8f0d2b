"""``leasectl cat``: show what a handle holds."""

from __future__ import annotations

from typing import Literal

from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import OneOf, form_of, option, plain_command
from leasectl.cli.rendering.output import emit, emit_lines
from leasectl.errors import InvalidRequest, NotFound
from leasectl.leases.paths import handle_at, read_names
from leasectl.leases.service import lost_error
from leasectl.text.properties import check_key
from leasectl.text.wording import printable

NamesForm = Literal["plain", "csv", "json"]

EXAMPLE = """\b
Examples:
  leasectl cat "$h" --format csv
  leasectl pool set azure--install --property region=eastus
  leasectl cat "$h" --property region
"""


@plain_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@option(
    "--format",
    "form",
    type=OneOf("plain", "csv", "json"),
    help="plain, the default: one name per line; csv: one line; json: all facts about the handle.",
)
@option(
    "--property",
    "key",
    type=check_key,
    metavar="K",
    help="Print this property of each resource instead of its name; exit with 66 if one lacks it.",
)
@options.json_output
def command(*, handle: str, form: NamesForm | None, key: str | None, as_json: bool) -> None:
    """Print the resources that a handle holds.

    Prints nothing for an empty handle. If the handle lost a lease, prints what is left and exits
    with 79.
    """
    wanted: NamesForm = form_of("--format", form, "plain", as_json=as_json)
    if key is not None:
        if wanted != "plain":
            raise InvalidRequest("--property can't be combined with --format or --json")
        emit_lines(_values(handle, key))
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


def _values(handle: str, key: str) -> tuple[str, ...]:
    """Return a property of each resource that a handle, or a copy of one, names.

    Raises:
        NotFound: A resource lacks the property, or the handle doesn't exist.
    """
    from leasectl.leases.properties import properties_by_name, properties_of

    service = open_service(for_handles=True)
    record = handle_at(service, handle) if handle else None
    if record is not None and record.lost and not record.names:
        raise lost_error(record, service.state)
    if record is not None:
        properties = properties_of(service, record)
    else:
        names = tuple(read_names(handle)) if handle else ()
        properties = dict.fromkeys(names, ())
        if names and service.kind.has_pools:
            properties = properties_by_name(service.members, names)
    if not properties:
        raise NotFound(
            f'handle "{printable(handle)}" holds no resource, so none has a property "{key}"'
        )
    for name, each in properties.items():
        if key not in dict(each):
            has = ", ".join(k for k, _ in each) or "none"
            raise NotFound(f'"{name}" has no property "{key}"; it has {has}')
    return tuple(dict(each)[key] for each in properties.values())
