"""Parse and format durations and times."""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.text.wording import printable

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OF_NUMBERS = "0123456789."  # `re` takes as long to load as a tenth of a command

# Far beyond any lease; keeps every sum of times exact and every timeout in range.
LONGEST_SECONDS = 3660 * 86400.0

_RANGES = "20m or 18m-22m"


class NoTime(InvalidRequest):
    """A text isn't a valid time; the caller adds the option's name."""


def parse_duration(text: str, *, like: str = "90s, 20m or 1h30m") -> float:
    """Read a duration.

    Args:
        text: A number of seconds, or numbers each with a unit ``s``, ``m``, ``h`` or ``d``.
        like: What an error shows as examples.

    Returns:
        Seconds, zero or more.

    Raises:
        NoTime: The text isn't a duration, is negative, or is longer than ten years.
    """
    seconds = _seconds(text)
    if seconds is None:
        why = ", it is negative" if text[:1] == "-" and _seconds(text[1:]) is not None else ""
        raise NoTime(
            f'invalid duration "{printable(text)}"{why}; write it like {like} (a bare number is '
            "seconds)"
        )
    if seconds > LONGEST_SECONDS:
        raise NoTime(f'duration "{printable(text)}" is longer than ten years')
    return seconds


class DurationRange(NamedTuple):
    """A duration that chance is to choose: from one to another, both in seconds."""

    shortest: float
    longest: float


def drawn_between(given: DurationRange | None) -> tuple[float, float] | None:
    """Return the range of a random time; None if the time is fixed or absent."""
    if given is None or given.shortest == given.longest:
        return None
    return given.shortest, given.longest


def draw_between(shortest_seconds: float, longest_seconds: float) -> float:
    """Draw a time from a range, uniformly; a range of one time is that time."""
    if shortest_seconds == longest_seconds:
        return shortest_seconds
    import random  # few commands need it

    return random.uniform(shortest_seconds, longest_seconds)


def parse_duration_range(text: str) -> DurationRange:
    """Read ``18m-22m``, or one duration, which is a range of its own.

    Raises:
        NoTime: One of them isn't a duration, the first is longer, or only the first has no unit:
            ``18-22m`` would be a wide range.
    """
    first, dash, second = text.partition("-")
    if not (dash and first and second):
        seconds = parse_duration(text, like=_RANGES)
        return DurationRange(seconds, seconds)
    shortest, longest = (parse_duration(each, like=_RANGES) for each in (first, second))
    if _is_plain(first) and not _is_plain(second):
        raise NoTime(
            f'"{printable(text)}": give both times a unit, like {first}{second[-1]}-{second}'
        )
    if shortest > longest:
        raise NoTime(f'"{printable(text)}": the first time is the longer; write it like 18m-22m')
    return DurationRange(shortest, longest)


def _seconds(text: str) -> float | None:
    if _is_plain(text):
        return float(text)
    total, number = 0.0, ""
    for each in text:
        if each in _OF_NUMBERS:
            number += each
        elif each in _UNIT_SECONDS and _is_plain(number):
            total += float(number) * _UNIT_SECONDS[each]
            number = ""
        else:
            return None
    return total if text and not number else None


def _is_plain(text: str) -> bool:
    """Tell whether it is a number: of digits, one at least, and one dot at most."""
    return not text.strip(_OF_NUMBERS) and text.strip(".") != "" and text.count(".") <= 1


def format_duration(seconds: float) -> str:
    """Write a duration for people, in at most two units: ``47s``, ``20m``, ``1h30m``, ``2d4h``."""
    return _in_two_units(int(seconds))


@lru_cache(maxsize=256)  # of thousands that are shown most are alike
def _in_two_units(whole: int) -> str:
    for unit, size, lesser, lesser_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // lesser_size
            return f"{whole // size}{unit}" + (f"{rest}{lesser}" if rest else "")
    return f"{whole}s"


def format_seconds(seconds: float) -> str:
    """Write a duration in which a fraction of a second matters: ``0.83s``, ``1.7s``, ``5s``.

    From ten seconds on it is as `format_duration` has it.
    """
    if seconds < 10:
        return f"{round(seconds, 2 if seconds < 1 else 1):g}s"
    return format_duration(round(seconds))


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
        f'invalid time "{printable(text)}"; write an age like 90s, 2h or 7d, or a date like '
        "2026-11-21 or 2026-11-21T14:00Z"
    )
