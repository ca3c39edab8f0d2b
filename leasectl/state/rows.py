"""Rows of the tables, and the facts that they stand for; each row is read and written by name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Callable, get_args

from leasectl.model import (
    Handle,
    HandleState,
    Labels,
    Lease,
    Process,
    Request,
    Scope,
    parse_process,
)

# Who asked a server of ours, for people; ":" keeps it apart from the labels that they can give.
SERVED_LABEL = "serve:client"
# The usual `state.event.Kept`.
KEPT_SECONDS = 30 * 86400.0
KEPT_NUMBER = 100_000
_EVENTS_PER_TRIMMING = 64
# As much as the database's log and more.
_LEFT_FOR_LEASES_BYTES = 4 << 20

# How schema 2 said what is `Handle.adopted_claim`. It is still written for processes of that time.
ADOPTED_LABEL = "adopted:owner"

_SCOPES: dict[str, Scope] = {each: each for each in get_args(Scope)}
_STATES: dict[str, HandleState] = {each: each for each in get_args(HandleState)}


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


class EventRows:
    """What has happened in a transaction, which is written at its end, all of it or nothing.

    Args:
        db: The database.
        fd: A file beside it.

    Attributes:
        kept_seconds, kept_number: How old and how many are kept, as `state.event.Kept`.
        refusal: Why some couldn't be written, until `tell_refusal`.
        warn: Called with a line for people about that, the first time.
    """

    def __init__(self, db: sqlite3.Connection, fd: int) -> None:
        self._db = db
        self._fd = fd
        self._rows: list[tuple[object, ...]] = []
        self.kept_seconds = KEPT_SECONDS
        self.kept_number = KEPT_NUMBER
        self.refusal = ""
        self.warn: Callable[[str], None] | None = None

    def add(
        self,
        time: float,
        kind: str,
        pool_type: str,
        names: Sequence[str] = (),
        fences: Sequence[int] = (),
        *,
        backend: str = "",
        handle: str = "",
        acquisition: int = 0,
        holder: str = "",
        count: int = 1,
        priority: int = 0,
        ticket: int = 0,
        grant: int = 0,
        wait: float | None = None,
        hold: float | None = None,
        by: str = "",
        reason: str = "",
    ) -> None:
        """Have an event be written; as `state.event.Event`, and the backend's URL, or none."""
        self._rows.append((
            time, kind, backend, pool_type, ",".join(names), ",".join(map(str, fences)), handle,
            acquisition, holder, count, priority, ticket, grant, wait, hold, by, reason,
        ))  # fmt: skip

    def clear(self) -> None:
        """Forget them: they haven't happened, or were written."""
        self._rows.clear()

    def write(self, wake: Callable[[str], bool]) -> None:
        """Write them, if there are any, and wake who follows; if only that fails, all else stays.

        Args:
            wake: Wakes who reads a named pipe of waiters once the transaction has ended.
        """
        if not self._rows or not self.kept_number:
            return
        if self._is_disk_full():
            self.refusal = "the disk is all but full"
            return
        db, last = self._db, 0
        db.execute("SAVEPOINT events")
        try:
            for row in self._rows:
                last = db.execute(_INSERT_EVENT, row).lastrowid or 0
            is_followed = db.execute("SELECT 1 FROM follower LIMIT 1").fetchone() is not None
            if is_followed or last % _EVENTS_PER_TRIMMING < len(self._rows):
                from leasectl.state.event_trimming import finish_writing

                finish_writing(db, wake, seconds=self.kept_seconds, number=self.kept_number)
        except sqlite3.Error as error:
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO events")
            self.refusal = str(error)
        db.execute("RELEASE events")

    def _is_disk_full(self) -> bool:
        """Whether there is so little room left that the rest is for leases.

        Events make the database grow for as long as it has few of them. Where it can't grow its log
        isn't emptied any more, grows instead, and then nothing can be changed at all.
        """
        disk = os.fstatvfs(self._fd)
        return disk.f_bavail * disk.f_frsize < _LEFT_FOR_LEASES_BYTES and disk.f_blocks > 0

    def tell_refusal(self, path: str) -> None:
        """Say once why events couldn't be written; outside the transaction.

        Args:
            path: Of the database.
        """
        refusal, self.refusal = self.refusal, ""
        warn, self.warn = self.warn, None
        if warn is not None:
            warn(f"{path} takes no events ({refusal}); all else goes on without them")


EVENT_COLUMNS = (
    "time, kind, backend, type, names, fences, handle, acquisition, holder_identity, count, "
    "priority, ticket, grant_number, wait_seconds, hold_seconds, ended_by, reason"
)
_INSERT_EVENT = f"INSERT INTO event ({EVENT_COLUMNS}) VALUES (?{', ?' * 16})"


def encode_labels(labels: Labels) -> str:
    """Write labels as one text; `parse_labels` reads it back."""
    return "\n".join(f"{key}={value}" for key, value in labels)


def parse_labels(text: str) -> Labels:
    """Read what `encode_labels` wrote."""
    return tuple(
        (key, value) for key, _, value in (line.partition("=") for line in text.split("\n") if line)
    )


def labels_for_people(labels: Labels) -> Labels:
    """Those of a handle's labels that are to be shown."""
    return tuple(each for each in labels if each[0] != ADOPTED_LABEL)


def encode_process(process: Process | None) -> str | None:
    """Write what may be no process; `parse_optional_process` reads it back."""
    return None if process is None else process.encode()


def parse_optional_process(text: str | None) -> Process | None:
    """Read what `encode_process` wrote; ValueError if it didn't."""
    return None if text is None else parse_process(text)


def encode_range(seconds: tuple[float, float] | None) -> str | None:
    """Write a range of times in seconds; None for none."""
    return None if seconds is None else f"{seconds[0]},{seconds[1]}"


def encode_handle(handle: Handle) -> dict[str, object]:
    """Write a handle as a row, but for what is in other tables and whether it is watched."""
    request = handle.request
    labels = request.labels
    if handle.adopted_claim is not None:
        labels = (*labels, (ADOPTED_LABEL, handle.adopted_claim))
    return {
        "id": handle.id,
        "backend": handle.backend,
        "type": handle.granted_type or request.type,
        "types": ",".join(request.types) if request.other_types else None,
        "count": request.count,
        "name": request.name,
        "ttl_seconds": request.ttl_seconds,
        "release_after_seconds": request.release_after_seconds,
        "scope": request.scope,
        "labels": encode_labels(labels),
        "owner": handle.owner,
        "holder_identity": handle.holder_identity,
        "state": handle.state,
        "acquisition": handle.acquisition,
        "guard": encode_process(handle.guard),
        "waiter": encode_process(handle.waiter),
        "runner": encode_process(handle.runner),
        "shared_dir": handle.shared_dir,
        "lost": handle.lost,
        "settings": handle.settings,
        "lost_replies": handle.lost_replies,
        "cancelled": handle.cancelled,
        "adopted_claim": handle.adopted_claim,
        "served": handle.served,
        "unconfirmed": handle.unconfirmed,
        "explicit_ttl": handle.explicit_ttl,
        "priority": request.priority,
        "release_between": encode_range(request.release_between_seconds),
    }


def parse_handle(row: Mapping[str, Any], leases: Sequence[sqlite3.Row]) -> Handle:
    """Read a handle.

    Args:
        row: As `encode_handle` writes it, and ``release_at``.
        leases: Rows of what it holds, in order.

    Raises:
        ValueError: There is something in it that no version writes.
    """
    labels = parse_labels(row["labels"])
    # What a process of schema 2 writes after the migration has these flags as labels only.
    by_label = dict(labels)
    adopted_claim = row["adopted_claim"]
    if adopted_claim is None:
        adopted_claim = by_label.get(ADOPTED_LABEL)
    types = row["types"]
    pool_type, *other_types = types.split(",") if types else (row["type"],)
    request = Request(
        type=pool_type,
        count=row["count"],
        name=row["name"],
        ttl_seconds=row["ttl_seconds"],
        release_after_seconds=row["release_after_seconds"],
        scope=_scope(row["scope"]),
        labels=labels_for_people(labels),
        other_types=tuple(other_types),
        priority=row["priority"],
        release_between_seconds=_parse_range(row["release_between"]),
    )
    return Handle(
        id=row["id"],
        backend=row["backend"],
        request=request,
        owner=row["owner"],
        holder_identity=row["holder_identity"],
        state=_state(row["state"]),
        acquisition=row["acquisition"],
        leases=tuple(_lease(each, row["holder_identity"], request) for each in leases),
        guard=parse_optional_process(row["guard"]),
        waiter=parse_optional_process(row["waiter"]),
        runner=parse_optional_process(row["runner"]),
        shared_dir=row["shared_dir"],
        release_at=row["release_at"],
        lost=bool(row["lost"]),
        settings=row["settings"],
        lost_replies=row["lost_replies"],
        cancelled=bool(row["cancelled"]),
        adopted_claim=adopted_claim,
        served=bool(row["served"]) or SERVED_LABEL in by_label,
        unconfirmed=bool(row["unconfirmed"]),
        explicit_ttl=bool(row["explicit_ttl"]),
        granted_type=_granted_type(row) if types else None,
        lost_reason=row["lost_reason"],
    )


def encode_lease(handle_id: str, position: int, lease: Lease) -> dict[str, object]:
    """Write a lease of a handle as a row.

    Args:
        handle_id: The handle.
        position: In the order of the grant.
        lease: What it holds.
    """
    return {
        "handle": handle_id,
        "name": lease.name,
        "position": position,
        "fence": lease.fence,
        "ticket": lease.ticket,
        "grant_number": lease.grant,
        "acquire_time": lease.acquire_time,
        "renew_time": lease.renew_time,
        "lease_transitions": lease.lease_transitions,
    }


def _lease(row: sqlite3.Row, holder_identity: str, request: Request) -> Lease:
    return Lease(
        name=row["name"],
        fence=row["fence"],
        ticket=row["ticket"],
        grant=row["grant_number"],
        holder_identity=holder_identity,
        acquire_time=row["acquire_time"],
        renew_time=row["renew_time"],
        lease_duration_seconds=request.ttl_seconds,
        lease_transitions=row["lease_transitions"],
        labels=request.labels,
    )


def _granted_type(row: Mapping[str, Any]) -> str | None:
    """The type of the last grant, of a record with several types."""
    is_first = row["state"] == "acquiring" and row["acquisition"] == 1
    return None if is_first else str(row["type"])


def _parse_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    shortest, longest = map(float, text.split(","))
    return shortest, longest


def _scope(text: str) -> Scope:
    if text not in _SCOPES:
        raise ValueError(f'scope "{text}"')
    return _SCOPES[text]


def _state(text: str) -> HandleState:
    if text not in _STATES:
        raise ValueError(f'state "{text}"')
    return _STATES[text]
