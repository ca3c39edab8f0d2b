"""Fields of what another process tells of pools, and the error when they can't be read."""

from __future__ import annotations

from leasectl.errors import CorruptState
from leasectl.text.fields import read_text
from leasectl.text.printable import printable

_LONGEST_SHOWN = 2000


def read_shown(value: object) -> str:
    """A text, made safe to show."""
    return printable(read_text(value), longest=_LONGEST_SHOWN)


def unreadable(backend: str, error: Exception) -> CorruptState:
    """What a backend tells of its pools isn't what any version has written.

    Args:
        backend: The URL that it was asked of.
        error: What came of reading it.
    """
    said = printable(f"{type(error).__name__}: {error}", longest=80)
    return CorruptState(f"{backend}: what it tells of its pools can't be read: {said}")
