"""The form of what a check finds."""

from __future__ import annotations

from typing import Callable, NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


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
