"""Boskos' requests: all that they say is in the query, and their bodies are empty."""

from __future__ import annotations

from urllib.parse import urlencode

from leasectl.backends.boskos.address import BoskosAddress
from leasectl.http.messages import Call


def acquire(address: BoskosAddress, pool_type: str, owner: str, request_id: str | None) -> Call:
    """Ask for one of a type.

    Args:
        address: Of Boskos.
        pool_type: The type.
        owner: Whose it is to be.
        request_id: What keeps a place in the queue; None for whoever doesn't wait.
    """
    query = {"type": pool_type, "state": address.free, "dest": address.leased, "owner": owner}
    if request_id is not None:
        query["request_id"] = request_id
    return _call(address, "/acquire", query)


def acquire_by_name(address: BoskosAddress, name: str, owner: str) -> Call:
    """Ask for that very resource, past the queue.

    Never for several: of those Boskos keeps what it found, and doesn't say which.
    """
    query = {"names": name, "state": address.free, "dest": address.leased, "owner": owner}
    return _call(address, "/acquirebystate", query)


def update(address: BoskosAddress, name: str, owner: str) -> Call:
    """Say that an owner still has a resource; to anybody else's nothing happens."""
    return _call(address, "/update", {"name": name, "owner": owner, "state": address.leased})


def release(address: BoskosAddress, name: str, owner: str) -> Call:
    """Give back what an owner has; to anybody else's nothing happens."""
    return _call(address, "/release", {"name": name, "dest": address.release_to, "owner": owner})


def metric(address: BoskosAddress, pool_type: str) -> Call:
    """Ask how many of a type are in which state, and how many each owner has."""
    return _call(address, "/metric", {"type": pool_type}, method="GET")


def sign_of_life(address: BoskosAddress) -> Call:
    """Ask for what Boskos refuses, and nobody else in these words: a metric of no type."""
    return _call(address, "/metric", {}, method="GET")


def _call(address: BoskosAddress, path: str, query: dict[str, str], method: str = "POST") -> Call:
    text = f"?{urlencode(query)}" if query else ""
    return Call(f"{address.server}{path}{text}", method=method)
