"""Groups of commands, and their help."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence

import click
from click.formatting import measure_table

from leasectl.cli.rendering.output import show
from leasectl.errors import InvalidRequest
from leasectl.text.wording import commands_meant, printable

# What `run` sets for its command, and `acquire --output env` in a shell.
TOLD = (
    ("LEASECTL_HANDLE", "path of the handle"),
    ("LEASECTL_NAMES", "leased resources, with commas between them"),
    ("LEASECTL_TYPE", "pool that the lease comes from"),
    (
        "LEASECTL_FENCE",
        "fencing token of each resource; later holders get larger ones, so "
        "that a service can reject an earlier holder",
    ),
    ("LEASECTL_PROPERTIES", "properties of the leased resources, as JSON by name"),
    (
        "LEASECTL_PROPERTY_<KEY>",
        "each property, if one resource is leased; KEY is in capitals, with _ instead of . and -",
    ),
    ("LEASECTL_AROUND", "under run and once: handles of the enclosing run and once commands"),
    ("LEASECTL_ATTEMPT", "under run: number of the attempt, from 1"),
)
# What a long word is taken apart into: whatever ends with punctuation.
_PARTS = re.compile(r"\w*\W+|\w+")


class HelpFormatter(click.HelpFormatter):
    """Breaks a URL that is too long for its column after punctuation only; on a terminal, prints
    headings in bold."""

    def write_heading(self, heading: str) -> None:
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            heading = click.style(heading, bold=True)
        super().write_heading(heading)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        rows = list(rows)
        # As click leaves it for the second column.
        first = min(measure_table(rows)[0], col_max) + col_spacing
        width = max(self.width - first - 2, 10)
        super().write_dl(
            [(term, with_breaks(said, width)) for term, said in rows], col_max, col_spacing
        )


class HelpContext(click.Context):
    """Has help be wrapped by that."""

    formatter_class = HelpFormatter


def with_breaks(text: str, width: int) -> str:
    """Put a space where a word has to be broken that is longer than a line.

    No two pieces of it fit in one line, so that no such space is ever seen.
    """
    return re.sub(rf"\S{{{width + 1},}}", lambda word: " ".join(_pieces(word[0], width)), text)


def _pieces(word: str, width: int) -> Sequence[str]:
    pieces = [""]
    for part in _PARTS.findall(word):
        if pieces[-1] and len(pieces[-1]) + len(part) > width:
            pieces.append("")
        pieces[-1] += part
    return pieces


def _show_help(ctx: click.Context, _: click.Parameter, is_asked_for: bool) -> None:
    if is_asked_for and not ctx.resilient_parsing:
        show(f"{ctx.get_help()}\n")
        ctx.exit()


class HelpShown(click.Command):
    """A command, or a group, whose help is wrapped by that, and written as everything else is."""

    context_class = HelpContext

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


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


def group(*commands: click.Command) -> Callable[[Callable[[], None]], click.Group]:
    """Make a group of a function: its name and help, and these commands, in the order of help."""

    def make(function: Callable[[], None]) -> click.Group:
        made = click.group(cls=CommandGroup)(function)
        for each in commands:
            made.add_command(each)
        return made

    return make
