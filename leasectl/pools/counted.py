"""Counts of a server that lists no resources."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from leasectl.backends.kinds import claim_key_of
from leasectl.backends.servers import TypeCounts
from leasectl.errors import NotFound
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.state.event import EventFilter
from leasectl.system.poll import Interrupt

# What was lost longer ago is in the events, and shown no more.
_LOST_SECONDS = 24 * 3600.0


class CountedOwner(NamedTuple):
    """A holder of some resources of a type.

    Args:
        owner: As the server calls it.
        held: How many it has there.
        handle: The id of its handle in the state directory that was asked; None for others.
        names: The resources in that handle's record.
        since: Since when, wall clock, seconds since the epoch; None if it isn't known here.
    """

    owner: str
    held: int
    handle: str | None = None
    names: tuple[str, ...] = ()
    since: float | None = None


class CountedLoss(NamedTuple):
    """What a handle had and the server took away, within the last day.

    Args:
        name: Of the resource.
        holder_identity: Whose it was.
        at: When that was noticed, wall clock, seconds since the epoch.
    """

    name: str
    holder_identity: str
    at: float


class CountedType(NamedTuple):
    """A type as its server counts it.

    Args:
        type: The type.
        free: How many are free.
        states: How many are in each state, as the server calls it.
        owners: The holders with their numbers, the most first.
        waiting: How many requests wait in the state directory that was asked; others aren't known.
        lost: The resources that its handles have lost, the last first.
    """

    type: str
    free: int
    states: Mapping[str, int]
    owners: tuple[CountedOwner, ...]
    waiting: int
    lost: tuple[CountedLoss, ...]

    @property
    def capacity(self) -> int:
        """How many there are."""
        return sum(self.states.values())

    @property
    def held(self) -> int:
        """How many are held."""
        return sum(each.held for each in self.owners)


class Counts(NamedTuple):
    """What a server counts, at one instant.

    Args:
        backend: The URL that it was asked by.
        at: When that was, wall clock, seconds since the epoch.
        types: Each type that was asked for.
    """

    backend: str
    at: float
    types: tuple[CountedType, ...]


def count(
    service: Service,
    pool_type: str | None,
    *,
    others: Collection[str] = (),
    interrupts: Sequence[Interrupt] = (),
) -> Counts:
    """Count a type, or all that handles of this state directory have asked for.

    Args:
        service: On a backend that counts.
        pool_type: The type; None for all that are known here, as the server doesn't list them.
        others: Further types that may be known.
        interrupts: What ends it sooner, with whatever they raise.

    Raises:
        NotFound: The type doesn't exist.
        BackendUnreachable: No answer, or none to us, also where no type is known to ask for.
    """
    url, clock = service.backend_url, service.clock
    found: list[TypeCounts] = []

    def ask(asked: str) -> None:
        found.append(service.kind.counts(service.context, asked, interrupts=interrupts))

    if pool_type is not None:
        ask(pool_type)
    else:
        for known in sorted({*service.handles.types_at(url), *others}):
            with contextlib.suppress(NotFound):  # there was one once
                ask(known)
        probe = None if found else service.kind.open_probe(service.context)
        if probe is not None:
            probe()
    handles = [each for each in service.handles.active() if each.backend == url]
    here = {claim_key_of(each): each for each in handles}
    waiting = Counter(each.request.type for each in handles if each.state == "acquiring")
    at = clock.wall()
    types = tuple(
        _counted(each, here, waiting[each.type], _lost(service, each.type, at)) for each in found
    )
    return Counts(url, at, types)


def _counted(
    counts: TypeCounts, here: Mapping[str, Handle], waiting: int, lost: Sequence[CountedLoss]
) -> CountedType:
    owners = [
        _owner(owner, number, here.get(owner)) for owner, number in counts.owners.items() if owner
    ]
    owners.sort(key=lambda each: (-each.held, each.owner))
    free = counts.states.get(counts.free_state, 0)
    states = dict(sorted(counts.states.items()))
    return CountedType(counts.type, free, states, tuple(owners), waiting, tuple(lost))


def _owner(owner: str, number: int, handle: Handle | None) -> CountedOwner:
    if handle is None:
        return CountedOwner(owner, number)
    since = min((each.acquire_time for each in handle.leases), default=None)
    return CountedOwner(owner, number, handle.id, handle.names, since)


def _lost(service: Service, pool_type: str, at: float) -> list[CountedLoss]:
    wanted = EventFilter(type=pool_type, since=at - _LOST_SECONDS)
    found = [
        CountedLoss(name, event.holder_identity, event.time)
        for event in service.events.read(wanted)
        if event.kind == "lost"
        for name in event.names
    ]
    return found[::-1]
