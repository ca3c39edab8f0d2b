"""Scope ``test``: ``$SHARED_DIR/leases`` lists leases for later steps.

The list only says what a later step should release. A name that is granted again under the same
list stays in it. A name that couldn't be removed from it is recognised as out of date at the next
release.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state import shared_leases


def enlist(handle: Handle) -> None:
    """List the names of a handle, if it has scope ``test``.

    Raises:
        StateUnwritable: The list can't be written.
    """
    if handle.shared_dir is not None:
        shared_leases.add(handle.shared_dir, handle.names)


def unlist(service: Service, handle: Handle, names: Collection[str]) -> None:
    """Remove names that a handle has given back from its list, if that can be written."""
    if handle.shared_dir is not None and names:
        with contextlib.suppress(LeaseError):
            _take_out(service, handle.shared_dir, names)


def unlist_stale(service: Service, names: Collection[str]) -> None:
    """Remove names that are out of date from the caller's list.

    Raises:
        StateUnwritable: The list can't be written.
    """
    if names:
        _take_out(service, service.caller.require_shared_dir(), names)


def _take_out(service: Service, shared_dir: str, names: Collection[str]) -> None:
    def is_held(name: str) -> bool:
        holder = service.handles.holding(name, prefer=service.is_here)
        return holder is not None and holder.shared_dir == shared_dir

    shared_leases.remove(shared_dir, names, unless=is_held)
