"""The line that says on a terminal how a wait is going: one line, whatever the names."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.text.width import cells, shorten

# Less of a text than this says nothing.
_SUBJECT_AT_LEAST = 16
_LEAD = "waiting for "
_LAST_AT_LEAST = 13
# How long it has been and may yet be is what people look for.
_ALWAYS = ("waited ", "gives up ")


def fit_line(parts: Sequence[str], subject: str, width: int) -> str:
    """Join what is told of a wait, in one line of a terminal.

    What is waited for is cut first; then the words before it go, and what is told last is cut or
    goes, until the rest fits.

    Args:
        parts: What is told; the first is "waiting for", the subject and what may follow, and stays.
        subject: What is waited for.
        width: Cells that the line may take.
    """
    line = ", ".join(parts)
    if cells(line) <= width:
        return line
    head, *rest = parts
    shortest = head.replace(subject, shorten(subject, _SUBJECT_AT_LEAST), 1)
    needed = rest if rest and rest[-1].startswith(_ALWAYS) else rest[:-1]
    if _total([shortest, *needed]) > width:
        head, shortest = head[len(_LEAD) :], shortest[len(_LEAD) :]
    while _total([shortest, *rest]) > width:
        room = width - _total([shortest, *rest[:-1], ""])
        if room >= _LAST_AT_LEAST and not rest[-1].startswith(_ALWAYS):
            rest[-1] = shorten(rest[-1], room, cut="end")
            break
        missed_least = [each for each in rest if not each.startswith(_ALWAYS)][-1:]
        if not missed_least:
            break
        rest.remove(*missed_least)
    room = cells(subject) + width - _total([head, *rest])
    head = head.replace(subject, shorten(subject, max(room, _SUBJECT_AT_LEAST)), 1)
    return shorten(", ".join([head, *rest]), width, cut="end")


def _total(parts: Sequence[str]) -> int:
    return cells(", ".join(parts))
