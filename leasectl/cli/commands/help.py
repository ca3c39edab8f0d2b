"""``leasectl help``: the help of a command."""

from __future__ import annotations

import click

from leasectl.cli.command import new_command
from leasectl.cli.shown.output import show
from leasectl.errors import InvalidRequest

EXAMPLE = """\b
Examples:
  leasectl help run
  leasectl help pool create
"""


def _complete_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    group = None if ctx.parent is None else ctx.parent.command
    for name in ctx.params.get("path") or ():
        group = group.get_command(ctx, name) if isinstance(group, click.Group) else None
    names = group.list_commands(ctx) if isinstance(group, click.Group) else []
    return [each for each in names if each.startswith(incomplete)]


@new_command(epilog=EXAMPLE, options_metavar="[COMMAND]...")
@click.argument("path", nargs=-1, metavar="", shell_complete=_complete_path)
@click.pass_context
def command(ctx: click.Context, *, path: tuple[str, ...]) -> None:
    """Show the help of a command, or which commands there are.

    It is what the command's --help shows.
    """
    assert ctx.parent is not None
    found = ctx.parent
    for name in path:
        group = found.command
        if not isinstance(group, click.Group):
            raise InvalidRequest(f"{found.command_path} has no commands; see: leasectl help")
        _, each, _ = group.resolve_command(found, [name])
        assert each is not None
        found = each.context_class(each, info_name=name, parent=found, **each.context_settings)
    show(f"{found.get_help()}\n")
