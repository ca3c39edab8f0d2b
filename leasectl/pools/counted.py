"""Types of a server that only counts its resources, and what of them handles here have."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leasectl.backends.kinds import claim_key_of, kind_of
from leasectl.backends.opening import ask_counts
from leasectl.backends.servers import TypeCounts
from leasectl.errors import NotFound
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.system.poll import Interrupt


class CountedOwner(NamedTuple):
    """Who has some of a type.

    Args:
        owner: As the server calls it.
        number: How many it has there.
        handle: The handle of this state directory that it is; None for any other.
    """

    owner: str
    number: int
    handle: Handle | None


class CountedType(NamedTuple):
    """A type as its server counts it.

    Args:
        type: Which.
        free: How many can be had.
        states: How many are in each state, as the server calls it.
        owners: Who has how many, the most first.
    """

    type: str
    free: int
    states: Mapping[str, int]
    owners: tuple[CountedOwner, ...]

    @property
    def capacity(self) -> int:
        """How many there are."""
        return sum(self.states.values())


def count(
    service: Service, pool_type: str | None, *, interrupts: Sequence[Interrupt] = ()
) -> tuple[CountedType, ...]:
    """Count a type, or all that handles of this state directory have asked for.

    Args:
        service: On a backend that counts.
        pool_type: The type; None for all that are known here, as the server doesn't list them.
        interrupts: What ends it sooner, with whatever they raise.

    Raises:
        NotFound: There is no such type.
        BackendUnreachable: No answer, or none to us.
    """
    url = service.backend_url
    assert kind_of(url).counted_by is not None, "it counts"
    here = {claim_key_of(each): each for each in service.handles.active() if each.backend == url}

    def ask(asked: str) -> CountedType:
        counts = ask_counts(
            url, service.settings, asked, interrupts=interrupts, clock=service.clock
        )
        return _counted(counts, here)

    if pool_type is not None:
        return (ask(pool_type),)
    found: list[CountedType] = []
    for known in service.handles.types_at(url):
        with contextlib.suppress(NotFound):  # there was one once
            found.append(ask(known))
    return tuple(found)


def _counted(counts: TypeCounts, here: Mapping[str, Handle]) -> CountedType:
    owners = [
        CountedOwner(owner, number, here.get(owner))
        for owner, number in counts.owners.items()
        if owner
    ]
    owners.sort(key=lambda each: (-each.number, each.owner))
    free = counts.states.get(counts.free_state, 0)
    return CountedType(counts.type, free, dict(sorted(counts.states.items())), tuple(owners))


def encode_counted(counted: CountedType) -> dict[str, object]:
    """A counted type as JSON has it."""
    return {
        "type": counted.type,
        "capacity": counted.capacity,
        "free": counted.free,
        "states": dict(counted.states),
        "owners": [
            {
                "owner": each.owner,
                "held": each.number,
                "handle": None if each.handle is None else each.handle.id,
                "names": [] if each.handle is None else list(each.handle.names),
            }
            for each in counted.owners
        ],
    }
