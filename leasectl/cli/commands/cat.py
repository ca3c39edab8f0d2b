"""``leasectl cat``: show what a handle holds."""

from __future__ import annotations

from leasectl.backends.kinds import kind_of
from leasectl.cli import options
from leasectl.cli.context import open_service
from leasectl.cli.described import OneOf, as_json_only, option, plain_handle_command
from leasectl.cli.shown.handle_output import print_handle_json
from leasectl.cli.shown.output import emit, emit_lines
from leasectl.errors import InvalidRequest, NotFound
from leasectl.leases.targets import Targets, read_names
from leasectl.text.printable import printable
from leasectl.text.properties import check_key
from leasectl.typed.hints import Literal

NamesForm = Literal["plain", "csv", "json"]

EXAMPLE = """\b
Examples:
  leasectl cat "$h" --format csv
  leasectl pool set azure--install --property region=eastus
  leasectl cat "$h" --property region
"""


@plain_handle_command(epilog=EXAMPLE, options_metavar="H [OPTIONS]")
@options.handle
@option(
    "--format",
    "form",
    type=OneOf("plain", "csv", "json"),
    default="plain",
    show_default=True,
    help="plain: a name a line; csv: one line; json: all that is known of the handle.",
)
@option(
    "--property",
    "key",
    type=check_key,
    metavar="K",
    help="Instead of its name print this property of each, one a line; 66 if one has none.",
)
@options.json_output
def command(*, handle: str, form: NamesForm, key: str | None, as_json: bool) -> None:
    """Print what a handle holds now; nothing if it holds nothing."""
    if as_json:
        form = as_json_only("form", "--format", form)
    if key is not None:
        if form != "plain":
            raise InvalidRequest("--property prints one a line; leave out --format and --json")
        emit_lines(_values(handle, key))
        return
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


def _values(handle: str, key: str) -> tuple[str, ...]:
    """A property of each resource that a handle holds, or that a copy of one names.

    Raises:
        NotFound: One hasn't got it, or there is none.
    """
    from leasectl.leases.properties import properties_by_name, properties_of

    service = open_service(for_handles=True)
    record = Targets(service).handle_at(handle) if handle else None
    if record is not None:
        properties = properties_of(service, record)
    else:
        names = tuple(read_names(handle)) if handle else ()
        properties = dict.fromkeys(names, ())
        if names and kind_of(service.backend_url).has_pools:
            properties = properties_by_name(service.members, names)
    if not properties:
        raise NotFound(f'handle "{printable(handle)}" holds nothing that "{key}" could be said of')
    for name, each in properties.items():
        if key not in dict(each):
            has = ", ".join(k for k, _ in each) or "none"
            raise NotFound(f'"{name}" has no property "{key}"; it has {has}')
    return tuple(dict(each)[key] for each in properties.values())
