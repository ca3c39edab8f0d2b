"""``leasectl pool of``: in which pool a name is, or will be."""

from __future__ import annotations

import click

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import OUTPUT, as_json_only, option
from leasectl.cli.shown.output import show, show_json, when_due
from leasectl.pools.whereabouts import Whereabouts, whereabouts, whereabouts_fields
from leasectl.text.durations import format_seconds
from leasectl.text.naming import check_name
from leasectl.typed.hints import Literal

Form = Literal["plain", "type", "json"]

EXAMPLE = """\b
Examples:
  leasectl pool of azure--install--00
  echo "it is in $(leasectl pool of azure--install--00 --format type)"
"""


@new_command(epilog=EXAMPLE)
@click.argument("name", type=check_name, metavar="NAME", shell_complete=options.complete_name)
@option(
    "--format",
    "form",
    group=OUTPUT,
    type=click.Choice(["plain", "type", "json"]),
    default="plain",
    show_default=True,
    metavar="FORM",
    help="plain: all that is known, a line each; type: only the type of the pool; json.",
)
@options.json_output
@options.backend
def command(*, name: str, form: Form, as_json: bool, backend: str | None) -> None:
    """Show in which pool a name is, or where it belongs.

    Names that don't exist yet may be expected in a pool (pool expect). Exit code 66 when nobody
    knows it.
    """
    if as_json:
        form = as_json_only("form", "--format", form)
    found = whereabouts(open_service(backend), name)
    if form == "json":
        show_json(whereabouts_fields(found))
    elif form == "type":
        show(f"{found.type}\n")
    else:
        lines = [f"{title:<11}{text}\n" for title, text in _facts(found) if text]
        show("".join(lines))


def _facts(found: Whereabouts) -> list[tuple[str, str]]:
    member = found.member
    return [
        ("name", member.name),
        ("pool", (member.pool or "none yet") + (" (by default)" if member.by_default else "")),
        ("belongs to", _belongs(found)),
        ("state", _state(found)),
        ("moves to", f"{member.moves_to}, when it is released" if member.moves_to else ""),
        ("leaves", "when it is released" if member.leaves else ""),
        ("stays", _stays(found)),
        *(("property", f"{k}={v}") for k, v in member.properties),
    ]


def _belongs(found: Whereabouts) -> str:
    if found.belongs_to is None:
        return ""
    return found.belongs_to + ("" if found.pattern is None else f" (as {found.pattern})")


def _state(found: Whereabouts) -> str:
    if found.state == "expected":
        return ""
    cordoned = ", cordoned" if found.member.cordoned and found.state != "cordoned" else ""
    by = f" by {found.member.holder}" if found.member.holder else ""
    left = found.held_back_seconds
    until = "" if left is None else f" as somebody may claim it, which ends {when_due(left)}"
    return f"{found.state}{by}{until}{cordoned}"


def _stays(found: Whereabouts) -> str:
    lifetime = found.member.lifetime
    if lifetime is None:
        return ""
    if lifetime.process is not None:
        return f"as long as process {lifetime.process.pid} runs"
    return f"for {format_seconds(lifetime.ttl_seconds or 0.0)} after it has joined last"
