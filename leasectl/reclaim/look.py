"""What a reclaim sees of a pool: its leases, what is noted at them, and what of them is in use.

Uses are noted where a holder is, in its state directory, and nowhere else, so that a use costs no
request. So those of handles of this state directory are seen, whatever their backend; of others a
reclaim learns by their answers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Callable, NamedTuple

from leasectl.engines.facts import Resource
from leasectl.engines.notes import Notes
from leasectl.engines.pool_admin import PoolAdmin
from leasectl.reclaim.held import Held
from leasectl.system.clock import Clock


class Use(NamedTuple):
    """When a name of a handle was in use last.

    Args:
        acquisition: Of the handle.
        until: On the elapsed clock; None for now.
    """

    acquisition: int
    until: float | None


# By handle and name.
Uses = Mapping[tuple[str, str], Use]


class Ground(NamedTuple):
    """What a reclaim works on.

    Args:
        pool_type: The pool.
        pools: Its store's.
        notes: Likewise.
        atomic: Makes one change of several, where the store can do that.
        uses: What is seen to be in use, or to have been.
        clock: Where times come from.
        asked_by: Who takes back, for people.
    """

    pool_type: str
    pools: PoolAdmin
    notes: Notes
    atomic: Callable[[], AbstractContextManager[object]]
    uses: Callable[[], Uses]
    clock: Clock
    asked_by: str


def look(ground: Ground, *, group_by: str | None = None) -> list[Held]:
    """The leases of a pool as they are now.

    Args:
        ground: With the pool.
        group_by: The property that says what counts as one holder; None for a handle.

    Raises:
        NotFound: There is no such pool.
    """
    (pool,) = ground.pools.pools(ground.pool_type)
    notes = {(note.name, note.fence): note.text for note in ground.notes.of_pool(ground.pool_type)}
    uses = ground.uses()
    now, wall = ground.clock.elapsed(), ground.clock.wall()
    held: list[Held] = []
    for resource in pool.resources:
        lease = resource.lease
        if lease is None or resource.ended is not None:
            continue
        held.append(
            Held(
                lease.name,
                lease.fence,
                _group(resource, group_by),
                lease.holder_identity,
                max(0.0, wall - lease.acquire_time),
                _used_at(resource, uses, now),
                notes.get((lease.name, lease.fence)),
            )
        )
    return held


def _group(resource: Resource, group_by: str | None) -> str:
    if group_by is None:
        return resource.claim_key or ""
    properties = dict(resource.member.properties) if resource.member is not None else {}
    return properties.get(group_by, "")


def _used_at(resource: Resource, uses: Uses, now: float) -> float | None:
    handle_id, _, acquisition = (resource.claim_key or "").partition("/")
    use = uses.get((handle_id, resource.name))
    if use is None or acquisition not in ("", str(use.acquisition)):
        return None
    return now if use.until is None else min(use.until, now)
