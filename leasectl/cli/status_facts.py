"""What status tells of a pool, a resource and its holder, as a table or as JSON."""

from __future__ import annotations

from leasectl.model import Handle, Lease, Overview, Pool, Resource


def pool_counts(pool: Pool) -> dict[str, object]:
    """The numbers of a pool, as JSON shows them."""
    return {
        "capacity": pool.capacity,
        "free": pool.capacity - pool.held,
        "held": pool.held,
        "waiting": len(pool.queue),
    }


def handle_of(resource: Resource, overview: Overview) -> Handle | None:
    """The handle of this state directory that holds a resource, if one does."""
    return overview.handles.get(resource.claim_key or "")


def is_unconfirmed(handle: Handle | None) -> bool:
    """Tell whether a server has granted it and doesn't know that its client heard of it."""
    return handle is not None and handle.served and handle.unconfirmed


def host_of(lease: Lease) -> str:
    """Where the holder is, which its identity says last but one."""
    return (lease.holder_identity.split("/")[-2:-1] or ["-"])[0]
