"""How long jobs hold: all the same time, times from a range, or as a file lists them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from random import Random

from leasectl.errors import InvalidRequest
from leasectl.pools.simulation.arrivals import read_file
from leasectl.pools.simulation.job_files import parse_holds_file
from leasectl.pools.simulation.ranges import DURATION, parse_range
from leasectl.text.durations import format_seconds, parse_duration
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

FORMS = "20m, 16m-24m, 20m+-20% or the name of a file"
_FIXED = re.compile(DURATION, re.ASCII)


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
    try:
        seconds = parse_duration(text) if _FIXED.fullmatch(text) else None
        limits = parse_range(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"hold {error}") from None
    if seconds is not None:
        return Holds(format_seconds(seconds), seconds, lambda _: itertools.repeat(seconds))
    if limits is not None:
        low, high = limits
        shown = f"{format_seconds(low)}-{format_seconds(high)}"
        return Holds(shown, (low + high) / 2, lambda chance: _uniform(chance, low, high))
    content, where = read_file("hold", text, read, FORMS)
    listed = parse_holds_file(content, where)
    mean = sum(listed) / len(listed)
    return Holds(f"as in {where}", mean, lambda _: itertools.cycle(listed))


def _uniform(chance: Random, low: float, high: float) -> Iterator[float]:
    while True:
        yield chance.uniform(low, high)
