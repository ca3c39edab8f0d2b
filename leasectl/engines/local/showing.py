"""Read pools as they are shown."""

from __future__ import annotations

import sqlite3

from leasectl.engines.facts import QueueEntry, Resource
from leasectl.engines.local.member_rows import is_plain, member_of
from leasectl.engines.local.queues import RANKED_TICKETS
from leasectl.engines.rules.pace import effective_priority
from leasectl.model import Lease
from leasectl.state.directory import State
from leasectl.state.rows import (
    parse_labels,
    parse_optional_process,
    parse_where,
)

# In the order of `_plain`'s parameters.
_FACTS = (
    "resource.name AS name, resource.fence AS fence, ticket, grant_number, holder_identity, "
    "acquire_time, renew_time, lease_duration_seconds, lease_transitions, labels, owner, "
    "expires_at - :now AS expires_in"
)
_PLAIN = 12  # columns
_RESOURCES = (
    f"SELECT {_FACTS}, joined, reason, text, "
    "resource.type AS type, expected, by_default, cordoned, moves_to, leaves, member.process, "
    "ttl_seconds, properties, cordon, ends_at - :now AS ends_in, "
    "held_back_until - :now AS held_back_for "
    "FROM resource LEFT JOIN ended ON ended.name = resource.name AND is_ended "
    "LEFT JOIN note ON note.name = resource.name AND note.fence = resource.fence "
    "LEFT JOIN member ON member.name = resource.name "
    "WHERE resource.type = :type ORDER BY resource.name"
)
# For pools without other facts: to look for those of thousands takes as long as the rest.
_PLAIN_RESOURCES = f"SELECT {_FACTS} FROM resource WHERE type = :type ORDER BY name"
_IS_MORE_SO = (
    "SELECT EXISTS (SELECT 1 FROM ended) OR EXISTS (SELECT 1 FROM note) "
    "OR EXISTS (SELECT 1 FROM member)"
)
_QUEUE = (
    "SELECT ticket.number, ticket.holder_identity, ticket.count, since, ticket.owner, "
    "process, handle.name, coalesce(labels, '') AS labels, where_properties, "
    "suspended.number IS NOT NULL AS suspended, coalesce(ranked.priority, 0) AS rank, "
    f"coalesce(ranked.queued_at, :now) AS ranked_since FROM {RANKED_TICKETS} "
    "WHERE ticket.type = :type ORDER BY ticket.number"
)


def resources(state: State, pool_type: str, now: float) -> tuple[Resource, ...]:
    """Return a pool's resources by name, within a snapshot; now is CLOCK_BOOTTIME, in seconds."""
    if state.query(_IS_MORE_SO)[0][0]:
        return tuple(map(_resource, state.query(_RESOURCES, type=pool_type, now=now)))
    # Row by row, and by position: there may be thousands.
    return tuple([_plain(*row) for row in state.read(_PLAIN_RESOURCES, type=pool_type, now=now)])


def queue(
    state: State, pool_type: str, now: float, *, aging_seconds: float
) -> tuple[QueueEntry, ...]:
    """Return the waiters of a pool, the best first.

    Args:
        state: The opened state directory.
        pool_type: The pool.
        now: CLOCK_BOOTTIME, in seconds.
        aging_seconds: Of the pool's settings.
    """
    rows = state.query(_QUEUE, type=pool_type, now=now)
    entries = [_entry(row, now, aging_seconds) for row in rows]
    return tuple(sorted(entries, key=lambda each: -each.effective_priority))


def _resource(row: sqlite3.Row) -> Resource:
    found = _plain(*row[:_PLAIN])
    if found.lease is not None and row["text"] is not None:
        found = found._replace(note=row["text"])
    if found.lease is not None and row["reason"] is not None:
        found = found._replace(ended=row["reason"])
    if row["joined"] is None:  # no other facts
        return found
    member = member_of(row)
    return found._replace(
        member=None if is_plain(member) else member,
        held_back_seconds=row["held_back_for"],
        leaves_in_seconds=row["ends_in"],
    )


def _plain(
    name: str,
    fence: int,
    ticket: int,
    grant: int,
    identity: str,
    acquire_time: float,
    renew_time: float,
    duration: float | None,
    transitions: int,
    labels: str,
    owner: str | None,
    expires_in: float | None,
) -> Resource:
    """Return a resource without facts other than its holder."""
    if owner is None:
        return Resource(name)
    lease = Lease(
        name,
        fence,
        ticket,
        grant,
        identity,
        acquire_time,
        renew_time,
        duration,
        transitions,
        parse_labels(labels),
    )
    return Resource(name, lease, owner, expires_in)


def _entry(row: sqlite3.Row, now: float, aging_seconds: float) -> QueueEntry:
    process = parse_optional_process(row["process"])
    waited = now - row["ranked_since"]
    return QueueEntry(
        ticket=row["number"],
        holder_identity=row["holder_identity"],
        count=row["count"],
        since=row["since"],
        claim_key=row["owner"],
        pid=process.pid if process else None,
        name=row["name"],
        labels=parse_labels(row["labels"]),
        suspended=bool(row["suspended"]),
        priority=row["rank"],
        effective_priority=effective_priority(row["rank"], waited, aging_seconds),
        where=parse_where(row["where_properties"] or ""),
    )
