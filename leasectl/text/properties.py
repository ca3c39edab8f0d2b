"""Read fields of JSON objects, and properties of resources."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn, TypeVar

from leasectl.errors import InvalidRequest
from leasectl.model import Where
from leasectl.text.naming import LONGEST_NAME, is_name, is_resource_name, is_word
from leasectl.text.wording import printable

# What comes of reading fields of what isn't what it should be.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

_Value = TypeVar("_Value")
_LARGEST = 1 << 63  # of a number, as SQLite, etcd and Kubernetes have them
_MOST_DIGITS = 20


class Malformed(ValueError):
    """A value that isn't what it should be; the message may be shown."""


def reason_of(error: object) -> str:
    """Say what is wrong with a value in words of ours.

    Args:
        error: One of `MALFORMED`, or a text.
    """
    if isinstance(error, (str, Malformed, InvalidRequest)):
        return str(error)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return f'"{printable(error.args[0])}" is missing'
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "a value has the wrong type or form"


def read_json(text: str | bytes) -> Any:
    """Read JSON from a server or a file.

    Raises:
        Malformed: It isn't JSON, or a number in it is NaN, infinite or has more than 64 bits.
    """
    try:
        return _json_decoder()(text if isinstance(text, str) else text.decode())
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    except ValueError:
        raise Malformed("it is not JSON") from None


@cache
def _json_decoder() -> Callable[[str], Any]:
    import json  # which takes long to load

    return json.JSONDecoder(
        parse_int=read_integer, parse_float=read_number, parse_constant=refuse_constant
    ).decode


def refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's JSON takes for numbers."""
    raise Malformed(f"{constant} is not a number")


def read_integer(value: Any) -> int:
    """A whole number of 64 bits; text may hold it."""
    if isinstance(value, str) and len(value) > _MOST_DIGITS:
        raise Malformed("a number is too large")
    number = int(value)
    if not -_LARGEST <= number < _LARGEST:
        raise Malformed("a number is too large")
    return number


def read_number(value: Any) -> float:
    """A number of a size that clocks and counters have; Malformed for NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        raise Malformed("a number is infinite or not a number")
    if abs(number) >= _LARGEST:
        raise Malformed("a number is too large")
    return number


def read_text(value: object) -> str:
    """A text as it was written, which may be unsafe to show."""
    if not isinstance(value, str):
        raise Malformed("a field isn't text")
    return value


def read_name(value: object) -> str:
    """A name that is allowed."""
    name = read_text(value)
    if not is_resource_name(name):
        raise Malformed("a name has characters that aren't allowed")
    return name


def read_word(value: object) -> str:
    """Read a name, or free text that was escaped to one word."""
    word = read_text(value)
    if not is_word(word):
        raise Malformed("a word has characters that aren't allowed")
    return word


def read_optional(read: Callable[[Any], _Value], value: Any) -> _Value | None:
    """A field that may be null, or may be missing from what an older version wrote."""
    return None if value is None else read(value)


def read_record(
    kind: Any, readers: Mapping[str, Callable[[Any], object]], fields: Any, *first: object
) -> Any:
    """Read a named tuple; a field that is missing or null has its default, if there is one.

    Args:
        kind: Of the named tuple.
        readers: What reads each field, by its name.
        fields: What JSON held.
        first: The values of the first fields, which aren't read here.
    """
    given = {}
    for name, read in readers.items():
        value = fields.get(name)
        if value is not None:
            given[name] = read(value)
        elif name not in kind._field_defaults:
            given[name] = read(fields[name])
    return kind(*first, **given)


def read_each(read: Callable[[Any], _Value], values: Any) -> tuple[_Value, ...]:
    """Read the items of a list."""
    return tuple(map(read, values))


def read_time(value: object) -> float:
    """A time in RFC 3339, UTC, as `leasectl.system.clock.rfc3339` writes it; wall clock, seconds
    since the epoch."""
    from calendar import timegm  # which takes long to load

    whole, _, micros = read_text(value).rstrip("Z").partition(".")
    seconds = timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds + float(f"0.{micros or 0}")


LONGEST_VALUE = 1024  # bytes, in UTF-8
MOST = 32  # of a resource, and in a request


def check_key(text: str) -> str:
    """Return a property's key, or raise InvalidRequest when it isn't well-formed."""
    if not is_name(text):
        raise InvalidRequest(
            f'property "{printable(text)}" is not allowed; a key has letters, digits, ".", "_" and '
            f'"-", a letter or digit first, and at most {LONGEST_NAME} characters'
        )
    return text


def check_value(key: str, text: str) -> str:
    """Return the value of a property, or raise InvalidRequest when it can't be one."""
    if not text.isprintable():
        raise InvalidRequest(f'the value of property "{key}" must be one line of printable text')
    size = len(text.encode())
    if size > LONGEST_VALUE:
        raise InvalidRequest(
            f'the value of property "{key}" has {size} bytes; at most {LONGEST_VALUE} are allowed'
        )
    return text


def check_count(what: str, number: int) -> None:
    """Refuse more properties, or conditions on them, than there may be; InvalidRequest."""
    if number > MOST:
        raise InvalidRequest(f"{what} {number} properties; at most {MOST} are allowed")


def parse_conditions(texts: Sequence[str]) -> Where:
    """Read conditions, each ``K=V`` or ``K!=V``.

    Raises:
        InvalidRequest: One is neither, or can't be met with any other, or there are too many.
    """
    check_count("--where: conditions on", len(texts))
    where = tuple(dict.fromkeys(map(_parse_condition, texts)))
    wanted: dict[str, str] = {}
    for key, value, is_equal in where:
        if is_equal and wanted.setdefault(key, value) != value:
            raise InvalidRequest(
                f'--where: "{key}" can\'t be both "{printable(wanted[key])}" and '
                f'"{printable(value)}"; all conditions have to hold'
            )
    return where


def written(where: Where) -> tuple[str, ...]:
    """Conditions as `parse_conditions` reads them."""
    return tuple(f"{key}{'=' if is_equal else '!='}{value}" for key, value, is_equal in where)


def described(properties: Iterable[tuple[str, str]]) -> str:
    """Properties in one line for people, safe to show."""
    return " ".join(printable(f"{key}={value}", longest=LONGEST_VALUE) for key, value in properties)


def _parse_condition(text: str) -> tuple[str, str, bool]:
    key, equals, value = text.partition("=")
    is_equal = not key.endswith("!")
    key = key if is_equal else key[:-1]
    if not equals:
        raise InvalidRequest(f'--where "{printable(text)}": write it as KEY=VALUE or KEY!=VALUE')
    return check_key(key), check_value(key, value), is_equal
