"""What a reclaim sees of a pool: its leases, what is noted at them, and what of them is in use.

Uses are noted where a holder is, in its state directory, and nowhere else, so that a use costs no
request. So those of handles of this state directory are seen, whatever their backend; of others a
reclaim learns by their answers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from leasectl.engines.facts import Resource
from leasectl.engines.notes import Notes
from leasectl.engines.pool_admin import PoolAdmin
from leasectl.reclaim.held import Held
from leasectl.state.uses import LastUse
from leasectl.system.clock import Clock
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

# By handle and name.
LastUses = Mapping[tuple[str, str], LastUse]


class Ground(NamedTuple):
    """What a reclaim works on.

    Args:
        pool_type: The pool.
        pools: Its store's.
        notes: Likewise.
        atomic: Makes one change of several, where the store can do that.
        uses: When what is held was in use last, as far as that can be seen.
        clock: Where times come from.
        asked_by: Who takes back, for people.
        settle: Called when something was changed: sees to those who answer in this state directory.
    """

    pool_type: str
    pools: PoolAdmin
    notes: Notes
    atomic: Callable[[], AbstractContextManager[object]]
    uses: Callable[[], LastUses]
    clock: Clock
    asked_by: str
    settle: Callable[[], object] = lambda: None


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
    wall = ground.clock.wall()
    held: list[Held] = []
    for resource in pool.resources:
        lease = resource.lease
        if lease is None or resource.ended is not None:
            continue
        use = _last_use(resource, uses)
        held.append(
            Held(
                lease.name,
                lease.fence,
                _group(resource, group_by),
                lease.holder_identity,
                max(0.0, wall - lease.acquire_time),
                use is not None and use.until is None,
                None if use is None else use.until,
                notes.get((lease.name, lease.fence)),
            )
        )
    return held


def _group(resource: Resource, group_by: str | None) -> str:
    if group_by is None:
        return resource.claim_key or ""
    properties = dict(resource.member.properties) if resource.member is not None else {}
    return properties.get(group_by, "")


def _last_use(resource: Resource, uses: LastUses) -> LastUse | None:
    handle_id, _, acquisition = (resource.claim_key or "").partition("/")
    use = uses.get((handle_id, resource.name))
    return use if use is None or acquisition in ("", str(use.acquisition)) else None
