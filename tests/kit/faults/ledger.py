"""Which resources there are, and whose they are: Boskos, and the proxy's memory of what it took.

The two are apart because the proxy forgets a lease *before* it asks Boskos to free it: when that
fails, the resource stays leased at Boskos and the proxy knows no such name any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence


class NotReleased(Exception):
    """A release failed, for the reason that the proxy gives."""


class Ledger:
    """All resources of all types.

    Args:
        resources: Their names, by type. The first free one is granted, so that a name which was
            given back comes back at once: the hardest case for whoever mixes up two acquisitions.
    """

    def __init__(self, resources: Mapping[str, Sequence[str]]) -> None:
        self._resources = {name: list(members) for name, members in resources.items()}
        self._leased: set[str] = set()
        self._known: set[str] = set()
        self._occupied: set[str] = set()
        self._reaped: set[str] = set()

    def has_type(self, pool_type: str) -> bool:
        return pool_type in self._resources

    def grant(self, pool_type: str) -> str | None:
        """Lease the first free resource; None when there is none."""
        name = self._first_free(pool_type)
        if name is not None:
            self._leased.add(name)
            self._known.add(name)
            self._reaped.discard(name)
        return name

    def release(self, name: str, *, failing: str | None = None) -> None:
        """Give a name back.

        Args:
            name: As it was granted.
            failing: Boskos fails for this reason: the lease stays, and is forgotten.

        Raises:
            NotReleased: There is no such lease, or it was to fail.
        """
        if name not in self._known:
            raise NotReleased(f"no resource name {name}")
        self._known.discard(name)
        if name in self._reaped:
            self._reaped.discard(name)
            raise NotReleased(f"status 401 Unauthorized, statusCode 401 releasing {name}")
        if failing is not None:
            raise NotReleased(failing)
        self._leased.discard(name)

    def occupy(self, pool_type: str, count: int) -> list[str]:
        """Let other jobs have that many free resources, or as many as there are."""
        names: list[str] = []
        while len(names) < count:
            name = self._first_free(pool_type)
            if name is None:
                break
            self._occupied.add(name)
            names.append(name)
        return names

    def vacate(self, names: Iterable[str] = ()) -> list[str]:
        """Let other jobs give back these resources; all that they have when none is named."""
        given = sorted(self._occupied.intersection(names) if names else self._occupied)
        self._occupied.difference_update(given)
        return given

    def reap(self, names: Iterable[str]) -> list[str]:
        """Take leases back in Boskos, without telling their holders."""
        taken = sorted(self._leased.intersection(names))
        self._leased.difference_update(taken)
        self._reaped.update(taken)
        return taken

    def is_reaped(self, name: str) -> bool:
        return name in self._reaped

    @property
    def leased(self) -> list[str]:
        """What is leased through this proxy, forgotten leases included."""
        return sorted(self._leased)

    @property
    def forgotten(self) -> list[str]:
        """What is leased and can't be released any more: its release failed."""
        return sorted(self._leased - self._known)

    @property
    def occupied(self) -> list[str]:
        """What other jobs have."""
        return sorted(self._occupied)

    @property
    def free(self) -> dict[str, list[str]]:
        return {
            pool_type: [name for name in members if self._is_free(name)]
            for pool_type, members in self._resources.items()
        }

    def count_free(self, pool_type: str) -> int:
        return sum(map(self._is_free, self._resources[pool_type]))

    def _first_free(self, pool_type: str) -> str | None:
        return next(filter(self._is_free, self._resources[pool_type]), None)

    def _is_free(self, name: str) -> bool:
        return name not in self._leased and name not in self._occupied


def parse_resources(texts: Iterable[str]) -> dict[str, list[str]]:
    """Read ``T=3`` (names ``T--00`` to ``T--02``) or ``T=a,b`` as resources by type.

    Raises:
        ValueError: It is neither, or a name is there twice.
    """
    resources: dict[str, list[str]] = {}
    for text in texts:
        pool_type, equals, what = text.partition("=")
        if not pool_type or not equals:
            raise ValueError(f"not TYPE=COUNT or TYPE=NAME,NAME: {text!r}")
        if what.isdigit():
            names = [f"{pool_type}--{number:02d}" for number in range(int(what))]
        else:
            names = what.split(",")
        resources[pool_type] = names
    every = [name for names in resources.values() for name in names]
    if len(every) != len(set(every)):
        raise ValueError("a resource's name is there twice")
    return resources


class Places:
    """The places of one Boskos, by type; whoever has the r-th may have the r-th free resource.

    Args:
        ghost_seconds: For how long the place of a client that went away stays: `--request-ttl`, the
            real one's 30. None: there is no queue; who is the first to ask for what is free has it.
    """

    def __init__(self, ghost_seconds: float | None) -> None:
        self._ghost_seconds = ghost_seconds
        self._queues: dict[str, dict[int, float | None]] = {}

    @property
    def are_kept(self) -> bool:
        return self._ghost_seconds is not None

    def may_have(self, pool_type: str, request: int, *, free: int) -> bool:
        """Tell, of who asks now, whether one of so many is for it; it has a place from now on."""
        if self._ghost_seconds is None:
            return free > 0
        now = time.monotonic()
        queue = self._queues.setdefault(pool_type, {})
        for each in [each for each, until in queue.items() if until is not None and until <= now]:
            del queue[each]
        queue.setdefault(request, None)
        return list(queue).index(request) < free

    def leave(self, pool_type: str, request: int) -> None:
        """It got what it asked for."""
        self._queues.get(pool_type, {}).pop(request, None)

    def abandon(self, pool_type: str, request: int) -> None:
        """It asks no more; its place stays for a while."""
        if self._ghost_seconds is not None and request in self._queues.get(pool_type, {}):
            self._queues[pool_type][request] = time.monotonic() + self._ghost_seconds
