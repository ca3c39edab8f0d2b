"""Renewing claims on the embedded pools, and giving them another ttl.

Every function that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from leasectl.engines.local.store import LocalStore
from leasectl.system.clock import Clock


def renew(store: LocalStore, claim_key: str, *, clock: Clock) -> tuple[str, ...]:
    """Give claims their full duration again; returns those that are left, by their fences."""
    left = sorted(store.claims(claim_key, None), key=lambda claim: claim["fence"])
    wall, elapsed = clock.wall(), clock.elapsed()
    store.state.db.executemany(
        "UPDATE resource SET renew_time = ?, expires_at = ? + lease_duration_seconds "
        "WHERE name = ?",
        [(wall, elapsed, claim["name"]) for claim in left],
    )
    return tuple(claim["name"] for claim in left)


def change_ttl(store: LocalStore, claim_key: str, ttl_seconds: float) -> None:
    """Have claims that expire do so this long after each renewal; the next is to follow."""
    store.state.db.execute(
        "UPDATE resource SET lease_duration_seconds = ? "
        "WHERE owner = ? AND lease_duration_seconds IS NOT NULL",
        (ttl_seconds, claim_key),
    )
    for row in store.claims(claim_key, None):
        # It may be free sooner than they know, also those to whom it comes when it is.
        moves_to = store.memberships().member(row["name"]).moves_to if row["is_bound"] else None
        store.queues.wake_for(moves_to or row["type"], [row["name"]])
