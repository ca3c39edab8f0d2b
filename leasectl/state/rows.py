"""Read and write rows, and the facts in them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from leasectl.model import Handle, Labels, Process, Where, parse_process

if TYPE_CHECKING:
    import sqlite3

# The label of a server's client, for people; users can't set a label with ":".
SERVED_LABEL = "serve:client"
SERVED_KEY_LABEL = "serve:key"
# Whether a resource can be claimed; the index `resource_free` has the same condition.
IS_FREE = "owner IS NULL AND closed = 0"
# Only for these names, a release or a claim has more to do; there is an index.
IS_SPECIAL = (
    "cordoned OR leaves OR moves_to IS NOT NULL OR process IS NOT NULL OR ends_at IS NOT NULL "
    "OR held_back_until IS NOT NULL"
)


_process = lru_cache(maxsize=64)(parse_process)  # one may guard many handles


def insert(
    db: sqlite3.Connection, table: str, row: Mapping[str, object], *, replace: bool = False
) -> sqlite3.Cursor:
    """Write a row; with `replace`, in place of the row with the same key."""
    # Values by position: SQLite looks up each name when it binds by name.
    return db.execute(_insert_into(table, tuple(row), replace), tuple(row.values()))


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
    """Read the text of `encode_labels`."""
    if not text:
        return ()
    return tuple(
        (key, value) for key, _, value in (line.partition("=") for line in text.split("\n") if line)
    )


def encode_process(process: Process | None) -> str | None:
    """Write a process, or None; `parse_optional_process` reads it back."""
    return None if process is None else process.encode()


def parse_optional_process(text: str | None) -> Process | None:
    """Read the text of `encode_process`; raise ValueError if it isn't one."""
    return None if text is None else _process(text)


def encode_range(seconds: tuple[float, float] | None) -> str | None:
    """Write a range of times in seconds; None for none."""
    return None if seconds is None else f"{seconds[0]},{seconds[1]}"


def encode_where(where: Where) -> str:
    """Write required properties as one text; `parse_where` reads it back."""
    if not where:
        return ""
    import json  # few requests need it

    return json.dumps(where)


def parse_where(text: str) -> Where:
    """Read the text of `encode_where`; raise ValueError if it isn't one."""
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

    A reader of the key could get the same lease, or give it back.
    """
    if not any(name == SERVED_KEY_LABEL for name, _ in labels):
        return labels
    import hashlib

    return tuple(
        (name, hashlib.sha256(text.encode()).hexdigest()[:16] if name == SERVED_KEY_LABEL else text)
        for name, text in labels
    )


# The numbers of acquisitions for the clients of a server are drawn, from this one on.
FIRST_DRAWN = 1 << 31
# Between the handle and the acquisition of a client of leasectl, in the id of its handle here.
OF_EXTENSION = ".."


def is_of_extension(handle: Handle) -> bool:
    """Return whether `leasectl serve` granted it to a client of leasectl, which renews it."""
    return handle.served and OF_EXTENSION in handle.id


def is_on_record_elsewhere(handle: Handle) -> bool:
    """Return whether `leasectl serve` granted it to a client that has records: it sent a key.

    Only that client knows of its guard and its release.
    """
    return handle.served and is_kept_by_client(handle.id, handle.request.labels)


def is_kept_by_client(handle_id: str, labels: Labels) -> bool:
    """Return whether a handle's client has records, for one that `leasectl serve` granted."""
    return OF_EXTENSION in handle_id or any(key == SERVED_KEY_LABEL for key, _ in labels)


def is_renewed(
    ttl_seconds: float | None, scope: str, *, is_explicit: bool, is_followed: bool
) -> bool:
    """Return whether `run` or the keeper renews a ttl without the holder's doing.

    A request with a ttl but without a process that has to live for it wants the lease to end by
    itself. Leases of scope ``test`` outlive the step and its keeper, so they aren't renewed.

    Args:
        ttl_seconds: Of the request.
        scope: Of the request.
        is_explicit: The user asked for the ttl; else it is the backend's default.
        is_followed: There is a guard or a runner.
    """
    if ttl_seconds is None or scope == "test":
        return False
    return not is_explicit or is_followed
