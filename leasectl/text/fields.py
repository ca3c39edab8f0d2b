"""How a field of JSON is read that somebody else has written: checked before it is believed."""

from __future__ import annotations

import math
import time

from leasectl.text.naming import is_name
from leasectl.typed.hints import Any, Callable, TypeVar

# What comes of reading fields of what isn't what it should be.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

_Value = TypeVar("_Value")


def read_number(value: Any) -> float:
    """A number that is one; ValueError for NaN and infinity, as `MALFORMED` has it."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a number has no end")
    return number


def read_text(value: object) -> str:
    """A text as it was written, which may be unsafe to show."""
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value


def read_name(value: object) -> str:
    """A name that is allowed."""
    name = read_text(value)
    if not is_name(name):
        raise ValueError("a name is not allowed")
    return name


def read_optional(read: Callable[[Any], _Value], value: Any) -> _Value | None:
    """A field that may be null, or may be missing from what an older version wrote."""
    return None if value is None else read(value)


def read_time(value: object) -> float:
    """A time in RFC 3339, UTC, as `leasectl.system.clock.rfc3339` writes it; wall clock, seconds
    since the epoch."""
    from calendar import timegm  # which takes long to load

    whole, _, micros = read_text(value).rstrip("Z").partition(".")
    seconds = timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds + float(f"0.{micros or 0}")
