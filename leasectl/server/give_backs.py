"""Giving back what clients were granted, as far as they may: a step on the records each.

Where leases come from another server such a step may take long, so it is done by a thread; then it
finds in the records what another one, or the keeper, has done meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.errors import LeaseError, NotFound
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget
from leasectl.server.grants import covers, key_in
from leasectl.system.process import this_process
from leasectl.text.naming import is_name


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


def release_one(service: Service, name: str, key: str | None) -> None:
    """Give a name back.

    Args:
        service: On the state directory and backend that are served.
        name: As it was granted by a server on this state directory.
        key: The client's `Idempotency-Key`: only what was granted with it is released.

    Raises:
        NotFound: No client has it, or not this one.
        LeaseError: As `release`.
    """
    if not is_name(name):  # what no database could be asked for, too
        raise NotFound(f"no resource name {name}")
    with service.atomic():
        handle = service.handles.holding(name, prefer=service.is_here)
        if handle is None or not _may_release(service, handle, key):
            raise NotFound(f"no resource name {name}")
        release(service, ReleaseTarget(handle.id, handle.acquisition, (name,)))
        left = service.handles.load(handle.id)
        if left is not None and left.state == "released":
            with service.state.transaction():
                service.handles.forget(handle.id, handle.acquisition)


def _may_release(service: Service, handle: Handle, key: str | None) -> bool:
    if not handle.served or not service.is_here(handle):
        return False
    if handle.state != "held" or handle.waiter == this_process():
        return False  # no answer has named it yet
    granted_with = key_in(handle.request)
    return key is None or (granted_with is not None and covers(key, granted_with))


def release_all_of(service: Service, key: str) -> None:
    """Give back all that was granted to a key, or one that begins with it.

    Args:
        service: On the state directory and backend that are served.
        key: As it was sent.

    Raises:
        LeaseError: Something couldn't be given back.
    """
    for handle in service.handles.active():
        granted_with = key_in(handle.request)
        if handle.state == "held" and granted_with is not None and covers(key, granted_with):
            finish(service, handle)
