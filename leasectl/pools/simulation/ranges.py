"""Ranges of times as people write them, for holds and policies: ``16m-24m``, ``20m+-20%``."""

from __future__ import annotations

import re

from leasectl.errors import InvalidRequest
from leasectl.text.durations import parse_duration, parse_duration_range
from leasectl.text.printable import printable

# What is meant as a duration, as a pattern; `parse_duration` says whether it is one.
DURATION = r"(?:[0-9.]+[smhd]?)+"
_RANGE = re.compile(rf"{DURATION}-{DURATION}", re.ASCII)
_SPREAD = re.compile(rf"({DURATION})(?:\+-|±)(?:([0-9.]+)%|({DURATION}))", re.ASCII)


def parse_range(text: str) -> tuple[float, float] | None:
    """Read a range of durations, in seconds; None when the text is none.

    Raises:
        InvalidRequest: It is one that can't be.
    """
    if _RANGE.fullmatch(text):
        return parse_duration_range(text)
    spread = _SPREAD.fullmatch(text)
    if not spread:
        return None
    middle = parse_duration(spread[1])
    share = spread[2]
    if share is None and spread[3][-1] not in "smhd":
        raise InvalidRequest(
            f'"{printable(text)}": {spread[3]} of what? Write {printable(text)}% or '
            f"{printable(text)}s"
        )
    around = parse_duration(spread[3]) if share is None else _percent(share, text) * middle
    if around > middle:
        raise InvalidRequest(f'"{printable(text)}": some of these times would be negative')
    return middle - around, middle + around


def _percent(number: str, text: str) -> float:
    try:
        return float(number) / 100
    except ValueError:
        raise InvalidRequest(f'"{printable(text)}": "{number}" is no number') from None
