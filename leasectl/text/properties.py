"""Properties of resources, and conditions on them, as people write them: ``K=V`` and ``K!=V``.

What they may be is said here once, for options, files and servers. A key has the characters of a
name, so that a condition can be taken apart in one way only; a value is one printable line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasectl.errors import InvalidRequest
from leasectl.model import Where
from leasectl.text.naming import LONGEST_NAME, is_name
from leasectl.text.printable import printable

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
    """Properties in one line, for people; safe to show, whoever has written them."""
    return " ".join(printable(f"{key}={value}", longest=LONGEST_VALUE) for key, value in properties)


def _parse_condition(text: str) -> tuple[str, str, bool]:
    key, equals, value = text.partition("=")
    is_equal = not key.endswith("!")
    key = key if is_equal else key[:-1]
    if not equals:
        raise InvalidRequest(f'--where "{printable(text)}": write it as KEY=VALUE or KEY!=VALUE')
    return check_key(key), check_value(key, value), is_equal
