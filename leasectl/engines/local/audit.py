"""Compare the records of handles with the claims.

Each function finds one kind of contradiction, or removes one; the caller decides which side is
right. Inside a transaction there should never be any.
"""

from __future__ import annotations

from typing import NamedTuple

from leasectl.model import Process
from leasectl.state.directory import State
from leasectl.state.handles import NEEDS_ALL
from leasectl.state.rows import parse_optional_process

# A claim that was ended by force is kept for a handle whose record has lost it already.
_IS_CLAIMED = "owner IS NOT NULL AND NOT is_ended"


class Claim(NamedTuple):
    """A hold on a resource, as one side records it.

    Args:
        claim_key: Of the recorded holder; for the embedded pools that is the handle's id.
        name: Of the resource.
    """

    claim_key: str
    name: str


class FenceMismatch(NamedTuple):
    """A fence in a handle's record that isn't the resource's."""

    claim: Claim
    recorded: int
    real: int


class Miscount(NamedTuple):
    """A pool that records more or fewer resources than there are."""

    pool_type: str
    counted: int
    real: int


class Suspended(NamedTuple):
    """A ticket that others may pass, as its waiter didn't claim in time."""

    pool_type: str
    holder_identity: str
    process: Process | None


def all_agree(state: State, backend: str) -> bool:
    """Check by one query that claims and records don't contradict each other.

    It takes half as long as the five checks below. Each lease of a held handle of this backend must
    have its claim, with that fence, and each such handle a lease. There must be no other claim and
    no other lease: if there is one, the five checks tell whether it is a contradiction.
    """
    ((told, true, leases, claims),) = state.query(
        "SELECT count(*), count(resource.name), (SELECT count(*) FROM lease), (SELECT count(*) "
        f"FROM resource WHERE {_IS_CLAIMED}) FROM handle LEFT JOIN lease ON lease.handle = id "
        "LEFT JOIN resource ON resource.name = lease.name AND resource.owner = id "
        "AND NOT is_ended "
        "AND resource.fence = lease.fence WHERE state = 'held' AND backend = ?",
        backend,
    )
    return bool(told == true == leases == claims)


def claims_without_record(state: State) -> list[Claim]:
    """Return resources that a handle holds according to the claims, and not to its record."""
    return _claims(
        state,
        f"SELECT owner AS claim_key, name FROM resource WHERE {_IS_CLAIMED} AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = owner AND lease.name = resource.name)",
    )


def records_without_handle(state: State, backend: str) -> list[Claim]:
    """Return leases on record for handles that hold nothing.

    Args:
        state: The opened state directory.
        backend: One whose grants and records are one transaction. Leases of any other are recorded
            before all of them have arrived.
    """
    return _claims(
        state,
        "SELECT handle AS claim_key, lease.name FROM lease LEFT JOIN handle ON id = handle "
        "WHERE id IS NULL OR state = 'released' OR (state = 'acquiring' AND backend = ?)",
        backend,
    )


def records_without_claim(state: State, backend: str) -> list[Claim]:
    """Return leases on record for held handles of a backend, of resources that aren't theirs."""
    return _claims(
        state,
        "SELECT handle AS claim_key, name FROM lease WHERE NOT EXISTS "
        "(SELECT 1 FROM resource WHERE resource.name = lease.name AND owner = handle "
        "AND NOT is_ended) AND EXISTS "
        "(SELECT 1 FROM handle WHERE id = lease.handle AND backend = ? AND state = 'held')",
        backend,
    )


def fence_mismatches(state: State) -> list[FenceMismatch]:
    """Return leases on record with another fence than the resource has."""
    rows = state.query(
        "SELECT handle, lease.name, lease.fence, resource.fence FROM lease JOIN resource "
        "ON resource.name = lease.name AND resource.owner = handle AND NOT is_ended "
        "WHERE lease.fence <> resource.fence"
    )
    return [
        FenceMismatch(Claim(claim_key, name), recorded, real)
        for claim_key, name, recorded, real in rows
    ]


def held_without_lease(state: State, backend: str) -> list[str]:
    """Return held handles of a backend that hold nothing."""
    rows = state.query(
        "SELECT id FROM handle WHERE backend = ? AND state = 'held' AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = id)",
        backend,
    )
    return [handle_id for (handle_id,) in rows]


def tickets_without_waiter(state: State) -> list[str]:
    """Return claim keys of tickets whose handles aren't acquiring."""
    rows = state.query(
        "SELECT owner FROM ticket WHERE NOT EXISTS "
        "(SELECT 1 FROM handle WHERE id = ticket.owner AND state = 'acquiring')"
    )
    return [claim_key for (claim_key,) in rows]


def suspended_tickets(state: State) -> list[Suspended]:
    """Return the tickets that others may pass, in the order of their pools and numbers.

    Those of requests for several pools aren't among them: they are parked by their own waiter.
    """
    rows = state.query(
        "SELECT ticket.type, ticket.holder_identity, process FROM ticket JOIN suspended "
        "USING (type, number) LEFT JOIN handle ON id = ticket.owner "
        f"WHERE NOT coalesce({NEEDS_ALL}, 0) ORDER BY ticket.type, number"
    )
    return [
        Suspended(pool_type, identity, parse_optional_process(process))
        for pool_type, identity, process in rows
    ]


def miscounts(state: State) -> list[Miscount]:
    """Return pools whose capacity isn't the number of their resources."""
    rows = state.query(
        "SELECT type, capacity, (SELECT count(*) FROM resource WHERE resource.type = pool.type) "
        "AS real FROM pool WHERE capacity <> real"
    )
    return [Miscount(pool_type, counted, real) for pool_type, counted, real in rows]


def forget_record(state: State, claim: Claim) -> None:
    """Remove a lease from the records of handles, whatever the handle's own record says."""
    state.db.execute(
        "DELETE FROM lease WHERE handle = ? AND name = ?", (claim.claim_key, claim.name)
    )


def correct_fence(state: State, claim: Claim, fence: int) -> None:
    """Set the fence in a lease's record to the resource's."""
    state.db.execute(
        "UPDATE lease SET fence = ? WHERE handle = ? AND name = ?",
        (fence, claim.claim_key, claim.name),
    )


def correct_capacity(state: State, pool_type: str, capacity: int) -> None:
    """Set the capacity that a pool records."""
    state.db.execute("UPDATE pool SET capacity = ? WHERE type = ?", (capacity, pool_type))


def _claims(state: State, sql: str, *values: object) -> list[Claim]:
    return [Claim(claim_key, name) for claim_key, name in state.query(sql, *values)]


def unused_pools(state: State) -> list[str]:
    """Return the types of pools without holders and waiters."""
    rows = state.query(
        "SELECT type FROM pool WHERE type NOT IN (SELECT type FROM ticket) AND "
        "type NOT IN (SELECT type FROM resource WHERE owner IS NOT NULL OR closed) ORDER BY type"
    )
    return [row["type"] for row in rows]
