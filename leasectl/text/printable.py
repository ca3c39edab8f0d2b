"""Foreign text, made safe to show."""

from __future__ import annotations


def printable(text: str, *, longest: int = 60) -> str:
    """Make foreign text safe for one line of a terminal: control characters escaped, cut."""
    safe = text if text.isprintable() else "".join(map(_escaped, text))
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
