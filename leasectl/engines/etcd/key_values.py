"""Read keys and values of responses.

It is checked before it is believed: whoever may write to etcd may write anything. Free text is
never refused, it is made safe to show: what is printable depends on the Python, and one label of a
newer one must not make a pool unreadable for the others.
"""

from __future__ import annotations

from typing import Any

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import ClaimId
from leasectl.errors import CorruptState
from leasectl.model import Labels
from leasectl.text.naming import is_name, is_resource_name
from leasectl.text.properties import Malformed, read_number, read_text, reason_of
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


def type_in(kv: KeyValue) -> str:
    """A pool's type, which is a value or its first word."""
    pool_type = kv.value.partition(" ")[0]
    if not is_name(pool_type):
        raise unreadable(kv, "the type is not allowed")
    return pool_type


def etcd_lease_id_in(kv: KeyValue) -> int:
    """The id of the etcd lease that is the last part of a key."""
    try:
        return int(kv.key.rpartition("/")[2], 16)
    except ValueError as error:
        raise unreadable(kv, error) from error


def claim_id_in(kv: KeyValue) -> ClaimId:
    """Read a key below ``owned/`` or ``waiting/``: of which claim it is, or of which ticket."""
    return ClaimId(type_in(kv), etcd_lease_id_in(kv))


def noted_in(kv: KeyValue) -> str:
    """What is noted at a claim, safe to show: it comes after a word that tells who wrote it."""
    return safe_text(kv.value.partition(" ")[2])


def number_in(kv: KeyValue) -> float:
    """A value that is a number."""
    try:
        return read_number(kv.value)
    except ValueError as error:
        raise unreadable(kv, error) from error


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


def read_labels(value: Any) -> Labels:
    """Labels as they were written, which may be unsafe to show."""
    return tuple((read_text(key), read_text(text)) for key, text in value)


def safe_labels(labels: Labels) -> Labels:
    """Labels that may be shown."""
    return tuple((safe_text(key), safe_text(value)) for key, value in labels)


def safe_text(text: str) -> str:
    """Text that may end up on somebody's terminal."""
    return printable(text, longest=LONGEST_SHOWN)
