"""Read and write rows, and the facts in them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from leasectl.model import Handle, Labels, Process, Where, parse_process

if TYPE_CHECKING:
    import sqlite3

# Who asked a server of ours, for people; ":" keeps it apart from the labels that they can give.
SERVED_LABEL = "serve:client"
SERVED_KEY_LABEL = "serve:key"
# Of a resource that can be claimed, as the index `resource_free` has it.
IS_FREE = "owner IS NULL AND closed = 0"
# Of these names alone a release, a claim or the time has anything to heed; there is an index.
IS_SPECIAL = (
    "cordoned OR leaves OR moves_to IS NOT NULL OR process IS NOT NULL OR ends_at IS NOT NULL "
    "OR held_back_until IS NOT NULL"
)


_process = lru_cache(maxsize=64)(parse_process)  # one may guard many


def insert(
    db: sqlite3.Connection, table: str, row: Mapping[str, object], *, replace: bool = False
) -> None:
    """Write a row, in place of the one with the same key if that is meant."""
    # Values by position: SQLite would look up each name whenever it binds by name.
    db.execute(_insert_into(table, tuple(row), replace), tuple(row.values()))


@lru_cache(maxsize=64)
def _insert_into(table: str, columns: tuple[str, ...], replace: bool) -> str:
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def encode_labels(labels: Labels) -> str:
    """Write labels as one text; `parse_labels` reads it back."""
    if not labels:
        return ""
    return "\n".join(f"{key}={value}" for key, value in labels)


def parse_labels(text: str) -> Labels:
    """Read what `encode_labels` wrote."""
    if not text:
        return ()
    return tuple(
        (key, value) for key, _, value in (line.partition("=") for line in text.split("\n") if line)
    )


def encode_process(process: Process | None) -> str | None:
    """Write what may be no process; `parse_optional_process` reads it back."""
    return None if process is None else process.encode()


def parse_optional_process(text: str | None) -> Process | None:
    """Read what `encode_process` wrote; ValueError if it didn't."""
    return None if text is None else _process(text)


def encode_range(seconds: tuple[float, float] | None) -> str | None:
    """Write a range of times in seconds; None for none."""
    return None if seconds is None else f"{seconds[0]},{seconds[1]}"


def encode_where(where: Where) -> str:
    """Write what has to be so of a resource as one text; `parse_where` reads it back."""
    if not where:
        return ""
    import json  # only here: few ask for that

    return json.dumps(where)


def parse_where(text: str) -> Where:
    """Read what `encode_where` wrote; ValueError if it didn't."""
    if not text:
        return ()
    import json

    try:
        return tuple(
            (str(key), str(value), bool(is_equal)) for key, value, is_equal in json.loads(text)
        )
    except TypeError as error:
        raise ValueError("conditions are a list of lists of three") from error


def without_keys(labels: Labels) -> Labels:
    """Replace the key that a client of `leasectl serve` sent by a hash of it.

    Whoever knows the key can have the same lease, or give it back.
    """
    if not any(name == SERVED_KEY_LABEL for name, _ in labels):
        return labels
    import hashlib

    return tuple(
        (name, hashlib.sha256(text.encode()).hexdigest()[:16] if name == SERVED_KEY_LABEL else text)
        for name, text in labels
    )


def is_on_record_elsewhere(handle: Handle) -> bool:
    """Tell whether `leasectl serve` granted it to a client that has records: it sent a key.

    Only those know of its guard and of its release.
    """
    return handle.served and any(key == SERVED_KEY_LABEL for key, _ in handle.request.labels)


def is_renewed(
    ttl_seconds: float | None, scope: str, *, is_explicit: bool, is_followed: bool
) -> bool:
    """Tell whether a ttl is renewed without the holder's doing, by its `run` or the keeper.

    Who asks for a ttl and names nobody who has to live for it, wants the lease to end by itself.
    Leases of scope ``test`` are to outlive the step and its keeper, so nobody renews them.

    Args:
        ttl_seconds: As the request has it.
        scope: Likewise.
        is_explicit: It was asked for; else it is the backend's default.
        is_followed: There is a guard or a runner.
    """
    if ttl_seconds is None or scope == "test":
        return False
    return not is_explicit or is_followed
