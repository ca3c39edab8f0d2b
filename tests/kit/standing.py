"""How things stand for a waiter, worked out of the whole pool: what engines count is held to it."""

from __future__ import annotations

from leasectl.engines.facts import Pool, Standing


def standing_in(pool: Pool, ticket: int) -> Standing:
    """How things stand for the ticket of that number."""
    leases = [each.lease for each in pool.resources if each.lease is not None]
    standing = Standing(
        position=1 + sum(entry.ticket < ticket for entry in pool.queue),
        others=sum(entry.ticket != ticket for entry in pool.queue),
        held=len(leases),
        capacity=pool.capacity,
    )
    if not leases:
        return standing
    oldest = min(leases, key=lambda lease: lease.acquire_time)
    return standing._replace(
        longest_holder=oldest.holder_identity, longest_since=oldest.acquire_time
    )
