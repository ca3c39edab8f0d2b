"""Scope ``test``: ``$SHARED_DIR/leases`` lists leases for later steps.

The list only says what there is to release. What is held anew under the very list stays in it,
and what can't be taken out of it is known to be out of date by whoever next releases it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state import shared_leases


def enlist(handle: Handle) -> None:
    """List what a handle has got, if it is one whose names are listed.

    Raises:
        StateUnwritable: The list can't be written.
    """
    if handle.shared_dir is not None:
        shared_leases.add(handle.shared_dir, handle.names)


def unlist(service: Service, handle: Handle, names: Collection[str]) -> None:
    """Take names that a handle has given back out of its list, if that can be written."""
    if handle.shared_dir is not None and names:
        with contextlib.suppress(LeaseError):
            _take_out(service, handle.shared_dir, names)


def unlist_stale(service: Service, names: Collection[str]) -> None:
    """Take names that are out of date out of the caller's list.

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
