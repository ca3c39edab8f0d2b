"""The line on a terminal that shows how a wait goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.cli.rendering.table import fitting
from leasectl.text.wording import cells, shorten

# Less of a text than this says nothing.
_SUBJECT_AT_LEAST = 13
_LEAD = "waiting for "


class Said(NamedTuple):
    """One thing that is told of a wait.

    Args:
        text: What is said.
        goes: Where room is short, what is told goes in this order, 1 first; 0 stays.
        short: What is said then before it goes; None for nothing shorter.
    """

    text: str
    goes: int = 0
    short: str | None = None


def fit_line(parts: Sequence[Said], subject: str, width: int, *, turn: int = 0) -> str:
    """Join what is told of a wait, in one line of a terminal.

    What is waited for is cut first; then the words before it go, and then what may go, whole. What
    goes first of all, and what goes second, take their turns in place of the others.

    Args:
        parts: What is told; the first is "waiting for", the subject and what may follow, and stays.
        subject: What is waited for.
        width: Cells that the line may take.
        turn: Counts up while the line is shown; of each three, the second shows what would have
            gone second, and the third what would have gone first.
    """
    line = _joined([each.text for each in parts])
    if cells(line) <= width:
        return line
    said = [each.short or each.text for each in parts]
    full, shortest = said[0], said[0].replace(subject, shorten(subject, _SUBJECT_AT_LEAST), 1)
    has_turn = (0, 2, 1)[turn % 3]
    needed = [text for part, text in zip(parts[1:], said[1:]) if has_turn == 1 or part.goes != 1]
    if cells(_joined([shortest, *needed])) > width:
        full, shortest = full[len(_LEAD) :], shortest[len(_LEAD) :]
    kept = _kept(parts, [shortest, *said[1:]], width, last=has_turn)
    rest = [said[n] for n in kept[1:]]
    room = cells(subject) + width - cells(_joined([full, *rest]))
    head = full.replace(subject, shorten(subject, max(room, _SUBJECT_AT_LEAST)), 1)
    return shorten(_joined([head, *rest]), width, cut="end")


def _kept(parts: Sequence[Said], said: Sequence[str], width: int, *, last: int) -> list[int]:
    """The positions of what there is room for; what has that number goes last."""
    going = [n for n, part in enumerate(parts) if part.goes]
    going.sort(key=lambda n: (parts[n].goes == last, parts[n].goes))
    return fitting(
        len(parts), going, going, lambda kept: cells(_joined([said[n] for n in kept])) <= width
    )


def _joined(said: Sequence[str]) -> str:
    return ", ".join(said)
