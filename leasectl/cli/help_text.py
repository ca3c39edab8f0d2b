"""Help as click makes it, wrapped so that words stay whole, and written as all else on stdout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click
from click.formatting import measure_table

from leasectl.cli.shown.output import show

# What a long word is taken apart into: whatever ends with punctuation.
_PARTS = re.compile(r"\w*\W+|\w+")


class HelpFormatter(click.HelpFormatter):
    """Breaks a word that is too long for its column, an address, after punctuation only."""

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
