"""Show pools, add to them, apply files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.errors import InvalidRequest, LeaseError, StateUnwritable
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.pools import changes, properties
from leasectl.pools.changes import PoolChange
from leasectl.pools.definitions import Definition
from leasectl.pools.overview import Overview, ShownPool
from leasectl.pools.overview_builder import OverviewBuilder
from leasectl.pools.overview_json import parse_overview
from leasectl.pools.properties import NO_CHANGE, PropertyChange
from leasectl.pools.settings import SettingsChange
from leasectl.state.reads import snapshot
from leasectl.state.uses import Uses
from leasectl.text.naming import is_reserved, next_names

# Of pools that nobody needs, by who only looks.
_REMOVED_AT_ONCE = 20


def show(service: Service, pool_type: str | None = None) -> tuple[Pool, ...]:
    """The pools as they are, after everything that is over has been put right."""
    release_abandoned(service)
    return tuple(_own(service.pools.pools(pool_type)))


def listed(service: Service) -> tuple[ShownPool, ...]:
    """All pools as they are shown, but for what the records of the holders tell."""
    builder = OverviewBuilder({}, {}, {}, shared=True, clock=service.clock)
    return tuple(builder.pool(_with_what_is_held_back(service, pool)) for pool in show(service))


def _with_what_is_held_back(service: Service, pool: Pool) -> Pool:
    """A pool with until when it holds something back, which isn't asked of the others."""
    if not pool.default_grace_seconds:
        return pool
    return service.pools.pools(pool.type)[0]


def overview(service: Service, pool_type: str | None = None, *, told: object = None) -> Overview:
    """The pools and who holds their resources, after everything that is over was put right.

    Args:
        pool_type: The one; None for all.
        told: What the server has told of them (`Kind.status`); None for pools of our own.

    Raises:
        NotFound: No such type.
        NotSupported: The backend has no pools of its own, and its server tells of none.
    """
    with contextlib.suppress(StateUnwritable):  # a full disk: what is over is shown as well
        release_abandoned(service)
    if told is not None:
        return parse_overview(told, backend=service.backend_url)
    overview, unused = _look(service, pool_type)
    # Here the keeper sees to it, which may have gone with its machine.
    if service.kind.remote:
        with contextlib.suppress(LeaseError):
            for each in unused[:_REMOVED_AT_ONCE]:
                remove_unused(service.backend, each.type)
    return overview


def look(service: Service, pool_type: str | None = None) -> Overview:
    """The pools of our own and who holds their resources, whatever there is to be put right.

    Raises:
        NotFound: No such type.
        NotSupported: The backend has no pools of its own.
    """
    return _look(service, pool_type)[0]


def as_recorded(service: Service) -> Overview:
    """Return the pools of our own as they are recorded, and change nothing.

    Raises:
        NotSupported: The backend has no pools of its own.
    """
    is_remote = service.kind.remote
    with contextlib.nullcontext() if is_remote else snapshot(service.state):
        return _look(service, None, is_snapshot=True)[0]


def _look(
    service: Service, pool_type: str | None, *, is_snapshot: bool = False
) -> tuple[Overview, list[Pool]]:
    """Return the overview, and the pools of `once` that no work uses any more."""
    looking = service.pools.looking
    with contextlib.nullcontext() if is_snapshot else looking(pool_type):
        pools, handles = _seen(service, pool_type)
        releases = service.handles.timers.of_names()
        uses = Uses(service.state).last()
    url, clock = service.backend_url, service.clock
    builder = OverviewBuilder(handles, releases, uses, shared=service.kind.remote, clock=clock)
    own, works = _own(pools), [each for each in pools if is_reserved(each.type)]
    in_use = [each for each in works if each.held or each.queue]
    overview = Overview(
        url, clock.wall(), tuple(map(builder.pool, own)), tuple(map(builder.pool, in_use))
    )
    return overview, [each for each in works if each not in in_use]


def _seen(service: Service, pool_type: str | None) -> tuple[tuple[Pool, ...], dict[str, Handle]]:
    """The pools, and the handles by what their claims are found by."""
    pools = service.pools.pools(pool_type)
    records = service.handles  # the pools tell who holds what
    is_remote = service.kind.remote
    # Of a claim without a record in pools that others share, nobody knows who follows it.
    active = records.active(with_leases=False) if is_remote else records.telling()
    handles = {claim_key_of(each): each for each in active}
    ended = [each for pool in pools for each in pool.resources if each.ended is not None]
    for resource in ended:
        handle = service.handles.load((resource.claim_key or "").partition("/")[0])
        if handle is not None and claim_key_of(handle) == resource.claim_key:
            handles[claim_key_of(handle)] = handle
    return pools, handles


def _add_numbered(
    service: Service, pool_type: str, count: int, change: PropertyChange
) -> tuple[str, ...]:
    """Add so many; others may add at the same time, and take some of the same numbers."""
    added: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    while True:
        with service.atomic():
            (pool,) = service.pools.pools(pool_type)
            before, there = names, [each.name for each in pool.resources]
            names = next_names(pool_type, count - len(added), there)
            try:
                properties.add_resources(service.members, pool_type, names, change, are_new=True)
                return added + names
            except InvalidRequest as error:
                if names == before:
                    raise  # it isn't that somebody else has just added the same
                added += error.done
                if len(added) == count:
                    return added


def create(
    service: Service,
    pool_type: str,
    names: Sequence[str],
    settings: PoolSettings = NO_SETTINGS,
    change: PropertyChange = NO_CHANGE,
) -> None:
    """Make a pool; as `properties.create_pool`."""
    with service.atomic():
        properties.create_pool(
            service.pools, service.members, pool_type, names, change, settings=settings
        )


def add_with(
    service: Service, pool_type: str, wanted: int | tuple[str, ...], change: PropertyChange
) -> tuple[str, ...]:
    """Add resources to a pool, of some names, or so many, named on from its highest number.

    Returns:
        The names of those that weren't there.

    Raises:
        LeaseError: As `properties.add_resources`.
    """
    if isinstance(wanted, int):
        return _add_numbered(service, pool_type, wanted, change)
    return properties.add_resources(service.members, pool_type, wanted, change)


def change_properties(
    service: Service, pool_type: str, names: Sequence[str] | None, change: PropertyChange
) -> tuple[str, ...]:
    """Change properties of a pool's resources, held or not.

    Args:
        pool_type: The pool.
        names: Of the resources; None for all.
        change: The properties to set and to remove.

    Returns:
        The names of those that were changed.

    Raises:
        NotFound: There is no such pool, or one isn't in it.
        InvalidRequest: One would have more properties than allowed.
    """
    with service.atomic():
        (pool,) = service.pools.pools(pool_type)
        all_names = tuple(each.name for each in pool.resources)
        return properties.change_properties(
            service.members,
            pool_type,
            all_names if names is None else names,
            change,
            as_seen=names is None,
        )


def change_settings(
    service: Service, pool_type: str, change: SettingsChange
) -> tuple[PoolSettings, PoolSettings]:
    """Change the settings of a pool; return them before and after.

    Raises:
        NotFound: No such type.
        InvalidRequest: The settings are invalid.
        NotSupported: The backend has no pools of its own.
    """
    with service.atomic():
        return changes.change_settings(service.pools, pool_type, change)


def apply(
    service: Service,
    definitions: Iterable[Definition],
    *,
    places: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> tuple[PoolChange, ...]:
    """Create and change pools as they are defined.

    Held resources stay, and so do pools without a definition and names that joined for a time.
    On the embedded pool, all of it is one step.

    Args:
        definitions: One for each pool.
        places: Where each name is listed, for messages.
        dry_run: Only return what would change.

    Returns:
        What has changed, or would, in the order of the definitions.

    Raises:
        InvalidRequest: A name is taken, or would be too long; nothing has changed.
        NotAllowed: A name is expected in another pool.
        NotSupported: The backend has no pools of its own.
    """
    release_abandoned(service)
    admin, members = service.pools, service.members
    with service.atomic():
        known, belonging = members.members(), members.belonging()
        planned = changes.plan(
            definitions, admin.pools(), known=known, belonging=belonging, places=places
        )
        if dry_run:
            return planned
        carried_out = changes.carry_out(planned, admin, members)
        for each in carried_out:
            came = {*each.added, *each.moved}  # and became with that what they are to be
            left = {name: what for name, what in each.properties.items() if name not in came}
            if left:
                properties.put_properties(members, each.type, left)
        return carried_out


def delete(service: Service, pool_type: str, *, force: bool) -> list[str]:
    """Delete a pool; return the resources of others that were to move there when released.

    Raises:
        NotFound: There is no such pool.
        NotAllowed: Leases are held or requests wait, and it isn't forced.
    """
    members = [each.member for pool in service.pools.pools() for each in pool.resources]
    coming = [each.name for each in members if each is not None and each.moves_to == pool_type]
    service.pools.delete_pool(pool_type, force=force)
    return coming


def _own(pools: Iterable[Pool]) -> list[Pool]:
    """Those pools that people have made, and none that work is done under."""
    return [each for each in pools if not is_reserved(each.type)]
