"""Commands that have commands: what happens when none is named, or one that there isn't."""

from __future__ import annotations

import sys

import click

from leasectl.cli.help_text import HelpShown
from leasectl.errors import InvalidRequest
from leasectl.text.printable import printable
from leasectl.text.suggestions import commands_meant


class CommandGroup(HelpShown, click.Group):
    """Suggests the nearest command, and takes a missing one for a mistake.

    Without a command, the help goes to stderr and the exit code is 64: a script in which
    ``leasectl $verb`` came out empty must not go on as if something had been done.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of their definition, not of the alphabet

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            sys.stderr.write(f"{ctx.get_help()}\n")
            ctx.exit(InvalidRequest.exit_code)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        wanted = args[0] if args else "-"
        if not wanted.startswith("-") and wanted not in known and not ctx.resilient_parsing:
            meant = commands_meant(wanted, known)
            quoted = " or ".join(f'"{each}"' for each in meant)
            hint = f"did you mean {quoted}? See" if meant else "see"
            raise InvalidRequest(
                f'no command "{printable(wanted)}"; {hint}: {ctx.command_path} --help'
            )
        return super().resolve_command(ctx, args)
