"""Tables for people: columns that line up and fit the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

GAP = 2
_ELLIPSIS = "…"


class Column(NamedTuple):
    """One column.

    Args:
        title: Its heading.
        right: Numbers stand at the right.
        shrinks: When space is short, columns lose some in this order, 1 first; 0 keeps its width.
        at_least: How many characters shrinking leaves as long as others can shrink instead.
        cut: Where characters are left out: in the ``middle`` or at the ``end``.
    """

    title: str
    right: bool = False
    shrinks: int = 0
    at_least: int = 8
    cut: str = "middle"


def output_width() -> int | None:
    """How wide a line of stdout may be; None for any width, as in a file or pipe."""
    if os.environ.get("COLUMNS", "").isdecimal() or os.isatty(1):
        import shutil

        return max(1, shutil.get_terminal_size().columns)
    return None


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, *, indent: str = ""
) -> str:
    """Lay out rows under their headings.

    Args:
        columns: The columns, left to right.
        rows: A text for each column.
        width: No line is longer than this; None for no limit.
        indent: Put before each line.

    Returns:
        Lines, each with its newline.
    """
    titles = [column.title for column in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *rows)]
    if width is not None:
        _shrink(widths, columns, width - len(indent) - GAP * (len(columns) - 1))
    lines = [
        indent + (" " * GAP).join(_cells(row, columns, widths)).rstrip() for row in (titles, *rows)
    ]
    return "".join(f"{shorten(line, width, cut='end')}\n" for line in lines)


def shorten(text: str, width: int | None, *, cut: str = "middle") -> str:
    """Leave out characters of a text that is too long, and show where."""
    if width is None or len(text) <= width:
        return text
    if width <= 1:
        return _ELLIPSIS[:width]
    end = (width - 1) // 2 if cut == "middle" else 0
    return text[: width - 1 - end] + _ELLIPSIS + text[len(text) - end :]


def _shrink(widths: list[int], columns: Sequence[Column], available: int) -> None:
    in_order = sorted(
        (column.shrinks, position) for position, column in enumerate(columns) if column.shrinks
    )
    for at_least in ([column.at_least for column in columns], [0] * len(columns)):
        for _, position in in_order:
            excess = sum(widths) - available
            spare = widths[position] - max(at_least[position], len(columns[position].title))
            widths[position] -= max(0, min(excess, spare))


def _cells(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    for text, column, width in zip(row, columns, widths):
        shown = shorten(text, width, cut=column.cut)
        yield shown.rjust(width) if column.right else shown.ljust(width)
