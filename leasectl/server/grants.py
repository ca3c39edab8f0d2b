"""Served leases as records: what a grant to a client looks like, and how it is found again.

A served handle has two labels: who asked, and the `Idempotency-Key` it was asked with. Its id is
made of the key, so that a repeated key finds its grant, whichever process made it.
"""

from __future__ import annotations

import hashlib

from leasectl.model import Request
from leasectl.state.handles import new_id
from leasectl.state.rows import SERVED_KEY_LABEL, SERVED_LABEL

LONGEST_KEY = 400


def is_key(text: str) -> bool:
    """Tell whether a header's value can be kept as a key."""
    return 0 < len(text) <= LONGEST_KEY and text.isascii() and text.isprintable()


def served_request(pool_type: str, count: int, *, client: str, key: str | None) -> Request:
    """What a client asks for, as a record keeps it."""
    labels = ((SERVED_LABEL, client), *(((SERVED_KEY_LABEL, key),) if key is not None else ()))
    return Request(pool_type, count, labels=labels)


def served_id(pool_type: str, key: str | None) -> str:
    """The handle's id for a request with this key."""
    if key is None:
        return new_id(pool_type)
    return f"{pool_type}-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def key_in(request: Request) -> str | None:
    """The key that a client's request came with."""
    return next((value for name, value in request.labels if name == SERVED_KEY_LABEL), None)


def covers(key: str, other: str) -> bool:
    """Tell whether a key means a request: it is the request's, or one of the parts it begins with.

    The keys of our own client are ``<handle>/<acquisition>/<index>``, and it gives up and releases
    by ``<handle>/<acquisition>``.
    """
    return other == key or other.startswith(f"{key}/")
