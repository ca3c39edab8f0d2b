"""Foreign text, made safe to show."""

from __future__ import annotations


def printable(text: str, *, longest: int = 60) -> str:
    """Make foreign text safe for one line of a terminal: control characters escaped, cut."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"
