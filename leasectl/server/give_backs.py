"""Records of granted leases, and their release."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from leasectl.errors import LeaseError, NotAllowed, NotFound
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Handle, Labels, ReleaseTarget, Request
from leasectl.state.handles import new_id
from leasectl.state.rows import SERVED_KEY_LABEL, SERVED_LABEL, is_of_extension
from leasectl.system.process import this_process
from leasectl.text.naming import is_resource_name

LONGEST_KEY = 400
SERVER_LABELS = "serve:"  # begins those that only a server gives
TOKEN_LABEL = "serve:token"
UNVERIFIED_LABEL = "serve:unverified-holder"


def is_key(text: str) -> bool:
    """Tell whether a header's value can be kept as a key."""
    return 0 < len(text) <= LONGEST_KEY and text.isascii() and text.isprintable()


def served_request(
    pool_type: str,
    count: int,
    *,
    client: str,
    key: str | None,
    token: str = "",
    holder: str = "",
    limit_seconds: float | None = None,
) -> Request:
    """Return what a client asks for, as a record keeps it.

    Args:
        pool_type: A type.
        count: How many.
        client: Its address.
        key: What it repeats and releases it by; None for none.
        token: The name of what it showed; empty for none.
        holder: Its holder as the client names it, unverified; empty for none.
        limit_seconds: When the lease ends; None for never.
    """
    labels = served_labels(client, token)
    labels += ((UNVERIFIED_LABEL, holder),) if holder else ()
    labels += ((SERVED_KEY_LABEL, key),) if key is not None else ()
    return Request(pool_type, count, ttl_seconds=limit_seconds, labels=labels)


def served_labels(client: str, token: str) -> Labels:
    """Return the labels that tell of a client's address, and of its token if that has a name."""
    return ((SERVED_LABEL, client), *(((TOKEN_LABEL, token),) if token else ()))


def served_id(pool_type: str, key: str | None, token: str | None) -> str:
    """Return the handle's id for a request with this key from a client that showed this token."""
    if key is None:
        return new_id(pool_type)
    if token is None:
        digest = hashlib.sha256(key.encode()).hexdigest()
    else:
        digest = hmac.new(token.encode(), key.encode(), "sha256").hexdigest()
    return f"{pool_type}-{digest[:20]}"


def is_of_token(handle: Handle, key: str, token: str | None) -> bool:
    """Tell whether a grant to a key is one of this token, or was made without a token."""
    pool_type = handle.request.type
    return handle.id in (served_id(pool_type, key, token), served_id(pool_type, key, None))


def key_in(request: Request) -> str | None:
    """The key that a client's request came with."""
    return next((value for name, value in request.labels if name == SERVED_KEY_LABEL), None)


def token_in(request: Request) -> str:
    """The name of the token that a client's request came with; empty for none."""
    return next((value for name, value in request.labels if name == TOKEN_LABEL), "")


def covers(key: str, other: str) -> bool:
    """Tell whether a key means a request: it is the request's, or one of the parts it begins with.

    The keys of our own client are ``<handle>/<acquisition>/<index>``, and it gives up and releases
    by ``<handle>/<acquisition>``.
    """
    return other == key or other.startswith(f"{key}/")


class NotReleased(LeaseError):
    """Names couldn't be given back.

    Args:
        name: The first that couldn't.
        reason: Why.
        released: Those before it.
    """

    def __init__(self, name: str, reason: LeaseError, released: Sequence[str]) -> None:
        super().__init__(str(reason))
        self.name = name
        self.reason = reason
        self.released = tuple(released)


def release_one(service: Service, name: str, key: str | None, *, strict: bool = False) -> None:
    """Give a name back.

    Args:
        service: On the state directory and backend that are served.
        name: As it was granted by a server on this state directory.
        key: The client's `Idempotency-Key`: only what was granted with it is released.
        strict: Without a key, only what was granted without one.

    Raises:
        NotFound: No client has it, or not this one.
        LeaseError: As `release`.
    """
    if not is_resource_name(name):  # what no database could be asked for, too
        raise NotFound(f"no resource name {name}")
    with service.atomic():
        handle = service.handles.holding(name, prefer=service.is_here)
        if handle is None or not _may_release(service, handle, key, strict=strict):
            raise NotFound(f"no resource name {name}")
        release(service, ReleaseTarget(handle.id, handle.acquisition, (name,)))
        left = service.handles.load(handle.id)
        if left is not None and left.state == "released":
            with service.state.transaction():
                service.handles.forget(handle.id, handle.acquisition)


def _may_release(service: Service, handle: Handle, key: str | None, *, strict: bool) -> bool:
    if not handle.served or not service.is_here(handle) or is_of_extension(handle):
        return False
    if handle.state != "held" or handle.waiter == this_process():
        return False  # no answer has named it yet
    granted_with = key_in(handle.request)
    if key is None:
        return not strict or granted_with is None
    return granted_with is not None and covers(key, granted_with)


def release_all_of(service: Service, key: str, token: str | None) -> None:
    """Give back all that was granted to a key, or one that begins with it.

    Args:
        service: On the state directory and backend that are served.
        key: As it was sent.
        token: What the client showed.

    Raises:
        NotAllowed: A grant to that key was made to another token.
        LeaseError: Something couldn't be given back.
    """
    for handle in service.handles.active():
        granted_with = key_in(handle.request)
        if handle.state == "held" and granted_with is not None and covers(key, granted_with):
            if not is_of_token(handle, granted_with, token):
                raise NotAllowed("the Idempotency-Key belongs to another token")
            finish(service, handle)
