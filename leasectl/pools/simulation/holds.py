"""How long jobs hold: all the same time, times from a range, or as a file lists them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from random import Random
from typing import Callable, NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.pools.simulation.arrivals import read_file
from leasectl.pools.simulation.job_files import parse_holds_file
from leasectl.text.durations import format_seconds, parse_duration
from leasectl.text.printable import printable

FORMS = "20m, 16m-24m, 20m+-20% or the name of a file"
_DURATION = r"(?:[0-9.]+[smhd]?)+"
_FIXED = re.compile(_DURATION, re.ASCII)
_RANGE = re.compile(rf"({_DURATION})-({_DURATION})", re.ASCII)
_SPREAD = re.compile(rf"({_DURATION})(?:\+-|±)(?:([0-9.]+)%|({_DURATION}))", re.ASCII)


class Holds(NamedTuple):
    """How long jobs hold.

    Args:
        text: The same for people.
        mean_seconds: How long on average.
        draw: Makes times without end, in seconds.
    """

    text: str
    mean_seconds: float
    draw: Callable[[Random], Iterator[float]]


def parse_holds(text: str, read: Callable[[str], str]) -> Holds:
    """Read how long jobs hold.

    Args:
        text: ``20m`` for all; ``16m-24m`` or ``20m+-20%`` for a time out of a range, each as likely
            as the others; else the name of a file that lists them, to be used in order, again and
            again.
        read: Reads a file as text.

    Raises:
        InvalidRequest: It is none of these.
        LeaseError: The file can't be read.
    """
    if _FIXED.fullmatch(text):
        seconds = parse_duration(text)
        return Holds(format_seconds(seconds), seconds, lambda _: itertools.repeat(seconds))
    limits = parse_range(text)
    if limits is not None:
        low, high = limits
        shown = f"{format_seconds(low)}-{format_seconds(high)}"
        return Holds(shown, (low + high) / 2, lambda chance: _uniform(chance, low, high))
    content, where = read_file("hold", text, read, FORMS)
    listed = parse_holds_file(content, where)
    mean = sum(listed) / len(listed)
    return Holds(f"as in {where}", mean, lambda _: itertools.cycle(listed))


def parse_range(text: str) -> tuple[float, float] | None:
    """Read a range of durations, in seconds; None when the text is none.

    Raises:
        InvalidRequest: It is one that can't be.
    """
    limits = _RANGE.fullmatch(text)
    if limits:
        low, high = parse_duration(limits[1]), parse_duration(limits[2])
        if low > high:
            raise InvalidRequest(f'"{printable(text)}": the range ends before it begins')
        return low, high
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


def _uniform(chance: Random, low: float, high: float) -> Iterator[float]:
    while True:
        yield chance.uniform(low, high)
