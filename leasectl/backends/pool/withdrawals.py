"""Withdraw requests of other processes, on any machine.

A withdrawn waiter finds its ticket gone and can't tell why by that: the pool may have been changed
by hand. So the reason is written down before the ticket goes, under a key that only this request
has. The waiter deletes it as it reads it. A waiter that has died meanwhile never does, so the
reason is also deleted after an hour.

=================================  =====================================
killed                             the request
=================================  =====================================
before the reason is written       waits on
before the ticket is taken away    waits on; a later withdrawal writes its own reason
after that                         ends
=================================  =====================================
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leasectl.engines.values import ValueChange
from leasectl.errors import LeaseError
from leasectl.text.naming import superseding_key
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.backends.kinds import Backend
    from leasectl.engines.facts import QueueEntry
    from leasectl.engines.pool_admin import PoolAdmin
    from leasectl.engines.values import Values
    from leasectl.model import Claimant

_KEPT_SECONDS = 3600.0
_LONGEST_REASON = 1000


def withdraw(backend: Backend, entry: QueueEntry, why: str) -> None:
    """Withdraw a request that was seen in a queue, and leave its waiter the reason.

    Args:
        backend: The store.
        entry: The request.
        why: What its waiter says when it ends.
    """
    key = _key(entry.holder_identity, entry.claim_key)
    with backend.atomic():
        backend.values.change([ValueChange(key, why.encode(), keep_seconds=_KEPT_SECONDS)])
        backend.withdraw(entry.claim_key, why)
        with contextlib.suppress(LeaseError):
            backend.values.tidy()


def take_reason(values: Values, claimant: Claimant) -> str:
    """Return and forget why a request was withdrawn; empty if it wasn't."""
    with contextlib.suppress(LeaseError):
        key = _key(claimant.holder_identity, claimant.claim_key)
        found = values.get(key)
        if found is not None:
            values.change([ValueChange(key, None)])
            return printable(found.content.decode(errors="replace"), longest=_LONGEST_REASON)
    return ""


def supersede(backend: Backend, claimant: Claimant, *, granted: Mapping[str, int]) -> None:
    """Withdraw the older requests with a claimant's key in the pools that it asks.

    To be called with its own ticket in the queue, so that of two that do this at a time the newer
    one finds the older.

    Args:
        backend: The store.
        claimant: Who asks.
        granted: The pools and the numbers of its tickets that have become leases.
    """
    key = superseding_key(claimant.request.labels)
    why = f"superseded by a newer request of {claimant.holder_identity} (--supersede {key})"
    for pool_type in claimant.request.types:
        (pool,) = backend.pools.pools(pool_type)
        own = [each.ticket for each in pool.queue if each.claim_key == claimant.claim_key]
        if pool_type in granted:
            own.append(granted[pool_type])
        for entry in pool.queue:
            if not own or entry.ticket >= max(own) or entry.claim_key == claimant.claim_key:
                continue
            if superseding_key(entry.labels) == key:
                withdraw(backend, entry, why)


def waiting_as(pools: PoolAdmin, holder: str) -> list[QueueEntry]:
    """Find the requests of a holder in all queues.

    Args:
        pools: Of the store.
        holder: The whole identity, ``<job>/<build>``, or the handle's id.
    """
    found: dict[str, QueueEntry] = {}
    for pool in pools.pools():
        for entry in pool.queue:
            owner, _, handle = entry.holder_identity.rpartition("/")
            if holder in (entry.holder_identity, handle, owner.rpartition("/")[0]):
                found.setdefault(entry.claim_key, entry)  # it may wait in several queues
    return list(found.values())


def _key(holder_identity: str, claim_key: str) -> str:
    """What only one request has, whichever state directory names it."""
    acquisition = claim_key.rpartition("/")[2]
    text = f"{holder_identity} {acquisition}".encode()
    return f"requests/withdrawn/{hashlib.sha256(text).hexdigest()}"
