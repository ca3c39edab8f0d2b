"""Rows of handles and their leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from leasectl.model import (
    Handle,
    HandleState,
    Labels,
    Lease,
    OnReclaim,
    Request,
    Scope,
)
from leasectl.state.rows import (
    encode_labels,
    encode_process,
    encode_range,
    encode_where,
    parse_labels,
    parse_optional_process,
    parse_where,
)

if TYPE_CHECKING:
    import sqlite3

# The keeper also looks after a handle that has timers, or marks at its leases. CROSS: few of
# thousands of resources have a note, and SQLite can't know that.
IS_SEEN_TO = (
    "(EXISTS (SELECT 1 FROM timer WHERE timer.handle = handle.id) OR "
    "watched AND (EXISTS (SELECT 1 FROM mark_seen WHERE mark_seen.handle = handle.id) OR "
    "EXISTS (SELECT 1 FROM note CROSS JOIN resource USING (name, fence) "
    "WHERE owner = handle.id AND NOT is_ended)))"
)
_LEASE_COLUMNS = (
    "handle, name, position, fence, ticket, grant_number, acquire_time, renew_time, "
    "lease_transitions"
)
# In the order that `parse_handle` expects.
HANDLE_COLUMNS = (
    "id, backend, type, types, count, name, ttl_seconds, release_after_seconds, scope, labels, "
    "owner, holder_identity, state, acquisition, guard, waiter, runner, shared_dir, lost, "
    "settings, lost_replies, cancelled, adopted_claim, served, unconfirmed, explicit_ttl, "
    "priority, release_between, where_properties, on_reclaim, lost_reason, joined"
)
_HANDLES_AT_ONCE = 500  # older SQLite allows 999 values in a statement
_SCOPES: dict[str, Scope] = {each: each for each in get_args(Scope)}
_ON_RECLAIM: dict[str, OnReclaim] = {each: each for each in get_args(OnReclaim)}
_STATES: dict[str, HandleState] = {each: each for each in get_args(HandleState)}


def encode_handle(handle: Handle) -> dict[str, object]:
    """Write a handle as a row, without what is in other tables and whether it is watched."""
    request = handle.request
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
        "labels": encode_labels(request.labels),
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


def new_row(handle: Handle, *, watched: bool) -> dict[str, object]:
    """Return the row of a new request; for a watched one, the keeper has work to do."""
    row = {**encode_handle(handle), "watched": int(watched)}
    # NULL is the default, and Python's sqlite3 is slow with None.
    return {column: value for column, value in row.items() if value is not None}


def parse_handle(row: Iterable[Any], leases: Sequence[sqlite3.Row]) -> Handle:
    """Read a handle.

    Args:
        row: `HANDLE_COLUMNS`, and when it will be released.
        leases: Rows of its leases, in order.

    Raises:
        ValueError: It holds a value that leasectl doesn't write.
    """
    # By position: there may be thousands, and a look-up by name is slow.
    (
        handle_id, backend, pool_type, types, count, name, ttl_seconds, release_after_seconds,
        scope, label_text, owner, holder_identity, state, acquisition, guard, waiter, runner,
        shared_dir, lost, settings, lost_replies, cancelled, adopted_claim, served, unconfirmed,
        explicit_ttl, priority, release_between, where, on_reclaim, lost_reason, joined, release_at,
    ) = row  # fmt: skip
    request = _request(
        types or pool_type,
        count,
        name,
        ttl_seconds,
        release_after_seconds,
        scope,
        parse_labels(label_text),
        priority,
        release_between,
        where,
        on_reclaim,
    )
    is_first = state == "acquiring" and acquisition == 1
    return Handle(
        id=handle_id,
        backend=backend,
        request=request,
        owner=owner,
        holder_identity=holder_identity,
        state=_state(state),
        acquisition=acquisition,
        leases=tuple([_lease(each, holder_identity, request) for each in leases]),
        guard=parse_optional_process(guard),
        waiter=parse_optional_process(waiter),
        runner=parse_optional_process(runner),
        shared_dir=shared_dir,
        release_at=release_at,
        lost=bool(lost),
        settings=settings,
        lost_replies=lost_replies,
        cancelled=bool(cancelled),
        adopted_claim=adopted_claim,
        served=bool(served),
        unconfirmed=bool(unconfirmed),
        explicit_ttl=bool(explicit_ttl),
        granted_type=pool_type if types and not is_first else None,  # by the last grant
        lost_reason=lost_reason,
        joined=joined is not None,
    )


@lru_cache(maxsize=64)  # most of thousands of handles have the same request
def _request(
    types: str,
    count: int,
    name: str | None,
    ttl_seconds: float | None,
    release_after_seconds: float | None,
    scope: str,
    labels: Labels,
    priority: int,
    release_between: str | None,
    where: str,
    on_reclaim: str,
) -> Request:
    pool_type, *other_types = types.split(",")
    return Request(
        type=pool_type,
        count=count,
        name=name,
        ttl_seconds=ttl_seconds,
        release_after_seconds=release_after_seconds,
        scope=_scope(scope),
        labels=labels,
        other_types=tuple(other_types),
        priority=priority,
        release_between_seconds=_parse_range(release_between),
        where=parse_where(where),
        on_reclaim=_on_reclaim(on_reclaim),
    )


def encode_lease(handle_id: str, position: int, lease: Lease) -> dict[str, object]:
    """Write a lease of a handle as a row.

    Args:
        handle_id: The handle.
        position: In the order of the grant.
        lease: The lease.
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
    """Return the rows of handles' leases by the handle's id, in the order of the grant.

    Args:
        handle_ids: Of the handles.
        query: Reads from the database, like `State.query`.
    """
    found: dict[str, list[sqlite3.Row]] = {}
    for start in range(0, len(handle_ids), _HANDLES_AT_ONCE):
        some = handle_ids[start : start + _HANDLES_AT_ONCE]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT {_LEASE_COLUMNS} FROM lease WHERE handle IN ({marks}) ORDER BY position"
        for row in query(sql, *some):
            found.setdefault(row[0], []).append(row)
    return found


def _lease(row: sqlite3.Row, holder_identity: str, request: Request) -> Lease:
    _, name, _, fence, ticket, grant, acquire_time, renew_time, transitions = row
    return Lease(
        name,
        fence,
        ticket,
        grant,
        holder_identity,
        acquire_time,
        renew_time,
        request.ttl_seconds,
        transitions,
        request.labels,
    )


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
