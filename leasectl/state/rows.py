"""Rows of the tables, and the facts that they stand for; each row is read and written by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Callable, get_args

from leasectl.model import (
    Handle,
    HandleState,
    Labels,
    Lease,
    OnReclaim,
    Process,
    Request,
    Scope,
    Where,
    parse_process,
)

# Who asked a server of ours, for people; ":" keeps it apart from the labels that they can give.
SERVED_LABEL = "serve:client"
SERVED_KEY_LABEL = "serve:key"
# How schema 2 said what is `Handle.adopted_claim`. It is still written for processes of that time.
ADOPTED_LABEL = "adopted:owner"

# The owner of a free resource that nobody may have: so versions before leave it alone.
CLOSED_MARK = "#"
# Of these names alone a release, a claim or the time has anything to heed; there is an index.
IS_SPECIAL = (
    "cordoned OR leaves OR moves_to IS NOT NULL OR process IS NOT NULL OR ends_at IS NOT NULL "
    "OR held_back_until IS NOT NULL"
)

_HANDLES_AT_ONCE = 500  # older SQLite takes 999 values in a statement

_SCOPES: dict[str, Scope] = {each: each for each in get_args(Scope)}
_ON_RECLAIM: dict[str, OnReclaim] = {each: each for each in get_args(OnReclaim)}
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

    return tuple(
        (str(key), str(value), bool(is_equal)) for key, value, is_equal in json.loads(text)
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
        "lost": int(handle.lost),
        "settings": handle.settings,
        "lost_replies": handle.lost_replies,
        "cancelled": int(handle.cancelled),
        "adopted_claim": handle.adopted_claim,
        "served": int(handle.served),
        "unconfirmed": int(handle.unconfirmed),
        "explicit_ttl": int(handle.explicit_ttl),
        "priority": request.priority,
        "release_between": encode_range(request.release_between_seconds),
        "where_properties": encode_where(request.where),
        "on_reclaim": request.on_reclaim,
        "joined": 1 if handle.joined else None,
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
        where=parse_where(row["where_properties"]),
        on_reclaim=_on_reclaim(row["on_reclaim"]),
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
        joined=row["joined"] is not None,
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


def leases_of(
    handle_ids: Sequence[str], query: Callable[..., list[sqlite3.Row]]
) -> dict[str, list[sqlite3.Row]]:
    """The rows of leases that some handles hold, in the order of the grant, by the handle's id.

    Args:
        handle_ids: Which.
        query: Reads from the database, as `State.query`.
    """
    found: dict[str, list[sqlite3.Row]] = {}
    for start in range(0, len(handle_ids), _HANDLES_AT_ONCE):
        some = handle_ids[start : start + _HANDLES_AT_ONCE]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT * FROM lease WHERE handle IN ({marks}) ORDER BY position"
        for row in query(sql, *some):
            found.setdefault(row["handle"], []).append(row)
    return found


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


def _on_reclaim(text: str) -> OnReclaim:
    if text not in _ON_RECLAIM:
        raise ValueError(f'on_reclaim "{text}"')
    return _ON_RECLAIM[text]


def _state(text: str) -> HandleState:
    if text not in _STATES:
        raise ValueError(f'state "{text}"')
    return _STATES[text]
