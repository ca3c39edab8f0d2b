"""Show pools, add to them, apply files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.errors import InvalidRequest, LeaseError, StateUnwritable
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.pools.changes import PoolChange, carry_out, change_settings, plan
from leasectl.pools.definitions import Definition
from leasectl.pools.overview import Overview, ShownPool
from leasectl.pools.overview_builder import OverviewBuilder
from leasectl.pools.overview_json import parse_overview
from leasectl.pools.properties import (
    NO_CHANGE,
    PropertyChange,
    add_resources,
    change_properties,
    create_pool,
    put_properties,
)
from leasectl.pools.settings import SettingsChange
from leasectl.state.reads import snapshot
from leasectl.state.uses import Uses
from leasectl.text.naming import is_reserved, next_names

# Of pools that nobody needs, by who only looks.
_REMOVED_AT_ONCE = 20


class PoolService:
    """The use cases on the pools of a service's backend.

    Args:
        service: On the state directory and backend.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def show(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        """The pools as they are, after everything that is over has been put right."""
        release_abandoned(self._service)
        return tuple(_own(self._service.pools.pools(pool_type)))

    def listed(self) -> tuple[ShownPool, ...]:
        """All pools as they are shown, but for what the records of the holders tell."""
        builder = OverviewBuilder({}, {}, {}, shared=True, clock=self._service.clock)
        return tuple(builder.pool(self._with_what_is_held_back(pool)) for pool in self.show())

    def _with_what_is_held_back(self, pool: Pool) -> Pool:
        """A pool with until when it holds something back, which isn't asked of the others."""
        if not pool.default_grace_seconds:
            return pool
        return self._service.pools.pools(pool.type, expiries=True)[0]

    def overview(self, pool_type: str | None = None, *, told: object = None) -> Overview:
        """The pools and who holds their resources, after everything that is over was put right.

        Args:
            pool_type: The one; None for all.
            told: What `Backend.status` returned, if the server was asked already.

        Raises:
            NotFound: No such type.
            NotSupported: The backend has no pools of its own, and its server tells of none.
        """
        with contextlib.suppress(StateUnwritable):  # a full disk: what is over is shown as well
            release_abandoned(self._service)
        if told is None:
            told = self._service.kind.status(self._service.context, pool_type)
        if told is not None:
            return parse_overview(told, backend=self._service.backend_url)
        overview, unused = self._look(pool_type)
        # Here the keeper sees to it, which may have gone with its machine.
        if self._service.kind.remote:
            with contextlib.suppress(LeaseError):
                for each in unused[:_REMOVED_AT_ONCE]:
                    remove_unused(self._service.backend, each.type)
        return overview

    def look(self, pool_type: str | None = None) -> Overview:
        """The pools of our own and who holds their resources, whatever there is to be put right.

        Raises:
            NotFound: No such type.
            NotSupported: The backend has no pools of its own.
        """
        return self._look(pool_type)[0]

    def as_recorded(self) -> Overview:
        """Return the pools of our own as they are recorded, and change nothing.

        Raises:
            NotSupported: The backend has no pools of its own.
        """
        is_remote = self._service.kind.remote
        with contextlib.nullcontext() if is_remote else snapshot(self._service.state):
            return self._look(None, is_snapshot=True)[0]

    def _look(
        self, pool_type: str | None, *, is_snapshot: bool = False
    ) -> tuple[Overview, list[Pool]]:
        """Return the overview, and the pools of `once` that no work uses any more."""
        looking = self._service.pools.looking
        with contextlib.nullcontext() if is_snapshot else looking(pool_type):
            pools, handles = self._seen(pool_type)
            releases = self._service.handles.timers.of_names()
            uses = Uses(self._service.state).last()
        url, clock = self._service.backend_url, self._service.clock
        builder = OverviewBuilder(
            handles, releases, uses, shared=self._service.kind.remote, clock=clock
        )
        own, works = _own(pools), [each for each in pools if is_reserved(each.type)]
        in_use = [each for each in works if each.held or each.queue]
        overview = Overview(
            url, clock.wall(), tuple(map(builder.pool, own)), tuple(map(builder.pool, in_use))
        )
        return overview, [each for each in works if each not in in_use]

    def _seen(self, pool_type: str | None) -> tuple[tuple[Pool, ...], dict[str, Handle]]:
        """The pools, and the handles by what their claims are found by."""
        pools = self._service.pools.pools(pool_type, expiries=True)
        records = self._service.handles  # the pools tell who holds what
        is_remote = self._service.kind.remote
        # Of a claim without a record in pools that others share, nobody knows who follows it.
        active = records.active(with_leases=False) if is_remote else records.telling()
        handles = {claim_key_of(each): each for each in active}
        ended = [each for pool in pools for each in pool.resources if each.ended is not None]
        for resource in ended:
            handle = self._service.handles.load((resource.claim_key or "").partition("/")[0])
            if handle is not None and claim_key_of(handle) == resource.claim_key:
                handles[claim_key_of(handle)] = handle
        return pools, handles

    def _add_numbered(
        self, pool_type: str, count: int, add: Callable[[tuple[str, ...]], object]
    ) -> tuple[str, ...]:
        """Add so many; others may add at the same time, and take some of the same numbers."""
        added: tuple[str, ...] = ()
        names: tuple[str, ...] = ()
        while True:
            with self._service.atomic():
                (pool,) = self._service.pools.pools(pool_type)
                before, there = names, [each.name for each in pool.resources]
                names = next_names(pool_type, count - len(added), there)
                try:
                    add(names)
                    return added + names
                except InvalidRequest as error:
                    if names == before:
                        raise  # it isn't that somebody else has just added the same
                    added += error.done
                    if len(added) == count:
                        return added

    def create(
        self,
        pool_type: str,
        names: Sequence[str],
        settings: PoolSettings = NO_SETTINGS,
        change: PropertyChange = NO_CHANGE,
    ) -> None:
        """Make a pool; as `properties.create_pool`."""
        service = self._service
        with service.atomic():
            create_pool(service.pools, service.members, pool_type, names, change, settings=settings)

    def add_with(
        self, pool_type: str, wanted: int | tuple[str, ...], change: PropertyChange
    ) -> tuple[str, ...]:
        """Add resources to a pool, of some names, or so many, named on from its highest number.

        Returns:
            The names of those that weren't there.

        Raises:
            LeaseError: As `properties.add_resources`.
        """
        if isinstance(wanted, int):
            return self._add_numbered(
                pool_type,
                wanted,
                lambda names: add_resources(
                    self._service.members, pool_type, names, change, are_new=True
                ),
            )
        return add_resources(self._service.members, pool_type, wanted, change)

    def change_properties(
        self, pool_type: str, names: Sequence[str] | None, change: PropertyChange
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
        with self._service.atomic():
            (pool,) = self._service.pools.pools(pool_type)
            all_names = tuple(each.name for each in pool.resources)
            return change_properties(
                self._service.members,
                pool_type,
                all_names if names is None else names,
                change,
                as_seen=names is None,
            )

    def change_settings(
        self, pool_type: str, change: SettingsChange
    ) -> tuple[PoolSettings, PoolSettings]:
        """Change the settings of a pool; return them before and after.

        Raises:
            NotFound: No such type.
            InvalidRequest: The settings are invalid.
            NotSupported: The backend has no pools of its own.
        """
        with self._service.atomic():
            return change_settings(self._service.pools, pool_type, change)

    def apply(
        self,
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
        release_abandoned(self._service)
        admin, members = self._service.pools, self._service.members
        with self._service.atomic():
            known, belonging = members.members(), members.belonging()
            changes = plan(
                definitions, admin.pools(), known=known, belonging=belonging, places=places
            )
            if dry_run:
                return changes
            changes = carry_out(changes, admin, members)
            for each in changes:
                came = {*each.added, *each.moved}  # and became with that what they are to be
                left = {name: what for name, what in each.properties.items() if name not in came}
                if left:
                    put_properties(members, each.type, left)
            return changes


def _own(pools: Iterable[Pool]) -> list[Pool]:
    """Those pools that people have made, and none that work is done under."""
    return [each for each in pools if not is_reserved(each.type)]
