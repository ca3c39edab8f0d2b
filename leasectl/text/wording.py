"""How messages write numbers of things, and lists of them."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_LISTED = 5


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 handle``, ``2 handles``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str]) -> str:
    """Write some of many things, and how many are left out."""
    rest = len(texts) - _MOST_LISTED
    return ", ".join(texts[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")
