"""The form of what a check finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"
_MOST_LISTED = 5


class Finding(NamedTuple):
    """What one check found.

    Args:
        status: ``ok``; ``warn`` when it may become a problem; ``fail`` when something won't work.
        what: What was found.
        advice: What to do about it.
        exit_code: Of a failure; one of those of `leasectl.errors`.
        fixed: What was mended.
        name: Of the check.
        mend: Mends it and says what it did; None when it can't be mended safely, or is fine.
    """

    status: str
    what: str
    advice: str | None = None
    exit_code: int = 1
    fixed: str | None = None
    name: str = ""
    mend: Callable[[], str] | None = None


class Check(NamedTuple):
    """One check, and what it is called."""

    name: str
    make: Callable[[], Finding]


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 handle``, ``2 handles``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str]) -> str:
    """Write some of many things, and how many are left out."""
    rest = len(texts) - _MOST_LISTED
    return ", ".join(texts[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")
