"""Tables that fit a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from leasectl.text.wording import Cut, cells, pad, shorten, widest


def output_width() -> int | None:
    """How wide a line of stdout may be; None for any width, as in a file or pipe.

    COLUMNS holds for a pipe as well: watch(1) and the like set it for what they show.
    """
    columns = os.environ.get("COLUMNS", "")
    if (columns.isdecimal() and int(columns)) or os.isatty(1):  # 0 says nothing
        import shutil

        return max(1, shutil.get_terminal_size().columns)
    return None


def obeys_escapes(fd: int) -> bool:
    """Tell whether a descriptor is a terminal that knows escape sequences."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def shows_colour() -> bool:
    """Tell whether stdout is to have colours: a terminal, without NO_COLOR (no-color.org)."""
    return not os.environ.get("NO_COLOR") and obeys_escapes(1)


GAP = 2
Colour = str  # the parameter of "select graphic rendition", as ECMA-48 has it
BOLD, FAINT, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def painted(text: str, colour: Colour | None) -> str:
    """A text as a terminal shows it in a colour."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and text else text


def _plain(_: str) -> Colour | None:
    return None


class Column(NamedTuple):
    """One column.

    Args:
        title: Its heading.
        right: Numbers stand at the right.
        shrinks: When space is short, columns lose some in this order, 1 first; 0 keeps its width.
        at_least: How many cells shrinking leaves as long as others can shrink instead.
        cut: Where characters are left out.
        goes: When even that is too wide, columns are left out in this order, 1 first; 0 stays.
        colour: Of a cell with a text.
    """

    title: str
    right: bool = False
    shrinks: int = 0
    at_least: int = 8
    cut: Cut = "middle"
    goes: int = 0
    colour: Callable[[str], Colour | None] = _plain


def number(title: str, **settings: Any) -> Column:
    """A column of numbers or durations, which stand at the right."""
    return Column(title, right=True, **settings)


def yellow_if_any(text: str) -> Colour | None:
    """The colour of a number that is of note unless it is 0."""
    return None if text == "0" else YELLOW


class Table(NamedTuple):
    """A table that has been laid out.

    Args:
        text: Lines, each with its newline.
        left_out: The titles of columns that there was no room for.
        is_whole: Nothing is left out and nothing cut.
    """

    text: str
    left_out: tuple[str, ...] = ()
    is_whole: bool = True


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    indent: str = "",
    colour: bool = False,
) -> Table:
    """Lay out rows under their headings.

    Args:
        columns: The columns, left to right.
        rows: A text for each column.
        width: No line takes more cells than this; None for no limit.
        indent: Put before each line.
        colour: Use the columns' colours.
    """
    texts = [[column.title, *(row[n] for row in rows)] for n, column in enumerate(columns)]
    wanted = [widest(each) for each in texts]
    widths = [*wanted]
    chosen = list(range(len(columns)))
    if width is not None:
        available = width - len(indent)
        chosen = _with_room(widths, columns, available)
        _shrink(widths, columns, chosen, available)
    gap = " " * GAP
    filled = [_filled(texts[c], widths[c], columns[c]) for c in chosen]
    in_rows = list(zip(*filled)) or [()] * (1 + len(rows))
    whole = [(indent + gap.join(line)).rstrip() for line in in_rows]
    lines = whole if width is None else [shorten(each, width, cut="end") for each in whole]
    if colour:
        for n, row in enumerate(in_rows):
            if lines[n] == whole[n]:
                colours = [BOLD if n == 0 else columns[c].colour(texts[c][n]) for c in chosen]
                lines[n] = (indent + gap.join(map(_painted_cell, row, colours))).rstrip()
    left_out = tuple(column.title for n, column in enumerate(columns) if n not in chosen)
    return Table(
        "".join(f"{line}\n" for line in lines), left_out, widths == wanted and not left_out
    )


def _with_room(widths: Sequence[int], columns: Sequence[Column], available: int) -> list[int]:
    """The positions of the columns that there is room for once they have shrunk."""
    least = [
        min(width, max(column.at_least, cells(column.title))) if column.shrinks else width
        for column, width in zip(columns, widths)
    ]
    going = [n for n, column in enumerate(columns) if column.goes]
    going.sort(key=lambda n: columns[n].goes)
    return fitting(
        len(columns),
        going,
        # What is whole or not there at all may fit where a wider one, that went later, doesn't.
        [n for n in going if not columns[n].shrinks],
        lambda kept: _total([least[n] for n in kept]) <= available,
    )


def fitting(
    number: int, going: Sequence[int], coming_back: Sequence[int], fits: Callable[[list[int]], bool]
) -> list[int]:
    """Return the positions of the parts of a line that there is room for.

    Args:
        number: Of all parts.
        going: The positions of those that may be left out, the first to go first.
        coming_back: Of these, those that come back if there is room for them in the end: what went
            early may be smaller than what went after it.
        fits: Tells whether there is room for some parts.
    """
    kept = list(range(number))
    for position in going:
        if fits(kept):
            break
        kept.remove(position)
    for position in reversed(coming_back):
        again = sorted({*kept, position})
        if fits(again):
            kept = again
    return kept


def _shrink(
    widths: list[int], columns: Sequence[Column], chosen: Sequence[int], available: int
) -> None:
    in_order = sorted((columns[each].shrinks, each) for each in chosen if columns[each].shrinks)
    for at_least in ([column.at_least for column in columns], [0] * len(columns)):
        for _, position in in_order:
            excess = _total([widths[each] for each in chosen]) - available
            spare = widths[position] - max(at_least[position], len(columns[position].title))
            widths[position] -= max(0, min(excess, spare))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _painted_cell(cell: str, colour: Colour | None) -> str:
    return cell.replace(cell.strip(), painted(cell.strip(), colour), 1)


def _filled(texts: Sequence[str], width: int, column: Column) -> list[str]:
    """The texts of a column, each as wide as it is to be; there may be thousands."""
    if all(map(str.isascii, texts)) and max(map(len, texts)) <= width:
        return [each.rjust(width) if column.right else each.ljust(width) for each in texts]
    return [pad(shorten(t, width, cut=column.cut), width, right=column.right) for t in texts]
