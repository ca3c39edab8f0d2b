"""The form of what a check finds."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.errors import LeaseError, StateUnwritable
from leasectl.typed.hints import Callable, Literal
from leasectl.typed.tuples import NamedTuple

Status = Literal["ok", "warn", "fail"]
OK: Status = "ok"
WARN: Status = "warn"
FAIL: Status = "fail"

# Of the ways to fail, the worst first; all others are like 1.
_WORST_FIRST = (65, 66, 73, 69, 77, 64, 1)
ELSEWHERE = "choose another directory with LEASECTL_STATE_DIR"


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

    status: Status
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


def unwritable(what: str, advice: str) -> Finding:
    """The failure of a directory that can't hold the state."""
    return Finding(FAIL, what, advice, exit_code=StateUnwritable.exit_code)


def failure(name: str, error: LeaseError) -> Finding:
    """The failure of a check that an error ended; its message ends with what to do next."""
    what, _, advice = str(error).rpartition("; ")
    if not what:
        what, advice = advice, ""
    return Finding(FAIL, what, advice or None, exit_code=error.exit_code, name=name)


def exit_code(findings: Iterable[Finding]) -> int:
    """What `doctor` ends with: 0, or the code of the worst failure."""
    codes = {finding.exit_code for finding in findings if finding.status == FAIL}
    known = [code for code in _WORST_FIRST if code in codes]
    return known[0] if known else int(bool(codes))
