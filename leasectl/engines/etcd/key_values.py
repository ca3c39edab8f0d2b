"""Read keys and values of responses.

It is checked before it is believed: whoever may write to etcd may write anything. Free text is
never refused, it is made safe to show: what is printable depends on the Python, and one label of a
newer one must not make a pool unreadable for the others.
"""

from __future__ import annotations

from typing import Any

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.errors import CorruptState
from leasectl.text.naming import is_resource_name
from leasectl.text.properties import Malformed, read_number, reason_of
from leasectl.text.wording import printable

# Labels have 200 characters at most, and a character that is escaped becomes ten.
LONGEST_SHOWN = 2000
# Wall clock, in seconds; no calendar has more.
_YEAR_10000 = 253_402_300_800


def name_in(kv: KeyValue) -> str:
    """The last part of a key, which is a type's or a resource's name."""
    name = kv.key.rpartition("/")[2]
    if not is_resource_name(name):
        raise unreadable(kv, "the name is not allowed")
    return name


def unreadable(kv: KeyValue, error: object) -> CorruptState:
    """The error for a key that nobody of ours has written so."""
    return CorruptState(
        f"etcd: {printable(kv.key)} can't be read: {printable(reason_of(error), longest=80)}; "
        "was it written by a newer version?"
    )


def read_time(value: Any) -> float:
    """A time on the wall clock, in seconds, that a calendar has."""
    number = read_number(value)
    if not 0 <= number < _YEAR_10000:
        raise Malformed("a time is none")
    return number


def safe_text(text: str) -> str:
    """Text that may end up on somebody's terminal."""
    return printable(text, longest=LONGEST_SHOWN)
