"""Moments in the past as people write them: ``2h`` ago, ``2026-11-21``, ``2026-11-21T14:00Z``."""

from __future__ import annotations

import datetime

from leasectl.text.durations import NoTime, parse_duration
from leasectl.text.printable import printable

_LEAST_OF_A_DATE = len("2026-11-21")


def parse_moment(text: str, now: float) -> float:
    """Read when something was: a duration before now, or a date, with a time or without.

    Args:
        text: As people write it; a time without a zone is in UTC, as all that we show.
        now: Wall clock, seconds since the epoch.

    Returns:
        Wall clock, seconds since the epoch.

    Raises:
        NoTime: It is neither.
    """
    if len(text) >= _LEAST_OF_A_DATE and text[:4].isdecimal() and text[4] == "-":
        written = text[:-1] + "+00:00" if text[-1] in "Zz" else text  # Python 3.9 reads no Z
        try:
            date = datetime.datetime.fromisoformat(written)
            zone = date.tzinfo or datetime.timezone.utc
            return date.replace(tzinfo=zone).timestamp()
        except (ValueError, OverflowError):
            pass
    else:
        try:
            return now - parse_duration(text)
        except NoTime:
            pass
    raise NoTime(
        f'"{printable(text)}" is no time; write how long ago it was, like 90s, 2h or 7d, or a date '
        "like 2026-11-21 or 2026-11-21T14:00Z"
    )
