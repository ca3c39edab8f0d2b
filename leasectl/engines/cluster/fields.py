"""Read fields that others may have written: checked, and safe to show."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, get_args

from leasectl.engines.cluster.objects import PoolState
from leasectl.model import Labels, Where
from leasectl.text.properties import Malformed, read_integer, read_name, read_number, read_text
from leasectl.text.wording import printable

# Labels have 200 characters at most, and a character that is escaped becomes ten.
_LONGEST_SHOWN = 2000
# Wall clock, in seconds; no calendar has more.
_YEAR_10000 = 253_402_300_800
_MICRO_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]00:00)", re.ASCII
)


def parse_time(text: object) -> float:
    """Read a MicroTime, or a Time: wall clock, in seconds."""
    found = _MICRO_TIME.fullmatch(read_text(text))
    if found is None:
        raise Malformed("a time is none")
    year, month, day, hour, minute, second = parts = tuple(map(int, found.groups()[:6]))
    # Without `calendar` and `strptime`, which take long to load.
    whole = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    if not 0 <= whole < _YEAR_10000 or time.gmtime(whole)[:6] != parts:
        raise Malformed("no calendar has that time")
    return whole + int((found[7] or "0").ljust(6, "0")[:6]) / 1_000_000


def _days(year: int, month: int, day: int) -> int:
    """Since the epoch, counted from the March before: so a leap day is the last of its year."""
    year -= month <= 2
    of_years = 365 * year + year // 4 - year // 100 + year // 400
    return of_years + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469


def safe_text(text: str) -> str:
    """Return text that is safe in a terminal."""
    return printable(text, longest=_LONGEST_SHOWN)


def mapping(value: Any) -> Mapping[str, Any]:
    """What may have entries; none of what is none."""
    return value if isinstance(value, Mapping) else {}


def read_natural(value: Any) -> int:
    """A whole number that isn't less than 0."""
    number = read_integer(value)
    if number < 0:
        raise Malformed("a number is less than 0")
    return number


def read_positive(value: Any) -> float:
    """A duration, in seconds."""
    number = read_number(value)
    if number <= 0:
        raise Malformed("a duration is none")
    return number


def read_not_negative(value: Any) -> float:
    """A duration, or none."""
    number = read_number(value)
    if number < 0:
        raise Malformed("a duration is none")
    return number


def read_state(value: Any) -> PoolState:
    """Read the state of a pool."""
    if value not in get_args(PoolState):
        raise Malformed("a state is none")
    state: PoolState = value
    return state


def read_labels(value: Any) -> Labels:
    """Labels of a request, safe to show."""
    return tuple((safe_text(read_text(key)), safe_text(read_text(text))) for key, text in value)


def read_where(value: Any) -> Where:
    """What has to be so of a resource."""
    return tuple(
        (read_name(key), safe_text(read_text(wanted)), bool(is_equal))
        for key, wanted, is_equal in value
    )
