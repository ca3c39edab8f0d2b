"""How much room a text takes on a terminal, and how to make it take less.

A terminal has cells: most characters take one, those of East Asian scripts and pictures two,
combining ones none.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.typed.hints import Literal

Cut = Literal["middle", "end"]
_ELLIPSIS = "…"


def cells(text: str) -> int:
    """How many cells of a terminal a text of printable characters takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def widest(texts: Sequence[str]) -> int:
    """How many cells the widest of some texts takes; there may be thousands."""
    return max(map(len if "".join(texts).isascii() else cells, texts))


def shorten(text: str, width: int | None, *, cut: Cut = "middle") -> str:
    """Leave out characters of a text that takes more cells than there are, and show where.

    Args:
        text: Of printable characters.
        width: Cells; None for any number.
        cut: Where characters are left out.
    """
    if width is None or cells(text) <= width:
        return text
    if width <= 1:
        return _ELLIPSIS[:width]
    tail = (width - 1) // 2 if cut == "middle" else 0
    return _head(text, width - 1 - tail) + _ELLIPSIS + _head(text[::-1], tail)[::-1]


def wrap(text: str, width: int | None, *, indent: str) -> list[str]:
    """Lay a text out in lines, broken at spaces where there are any.

    Args:
        text: Of printable characters; runs of spaces in it stay.
        width: Cells of a line; None for any number.
        indent: Put before each line but the first, where there is room for it.
    """
    lines: list[str] = []
    while width is not None and cells(text) > width:
        head = _head(text, width) or text[:1]
        at = head.rfind(" ", len(indent) + 1) if text[len(head) :][:1] != " " else len(head)
        if at <= 0:
            at = len(head)
        lines.append(text[:at].rstrip())
        text = (indent if len(indent) < width // 2 else "") + text[at:].lstrip()
    return [*lines, text]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up with spaces, so that it takes that many cells and stands at one side."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def _head(text: str, width: int) -> str:
    """The longest beginning that takes no more cells."""
    if text.isascii():
        return text[:width]
    taken = 0
    for position, character in enumerate(text):
        taken += _cells_of(character)
        if taken > width:
            return text[:position]
    return text


def _cells_of(character: str) -> int:
    if character.isascii():
        return 1
    import unicodedata

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
