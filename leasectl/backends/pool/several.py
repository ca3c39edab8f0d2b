"""Wait in the queues of several pools at once, with a ticket in each, all with one claim key."""

from __future__ import annotations

from collections.abc import Sequence, Set

from leasectl.engines.contract import Engine, PoolWaiter
from leasectl.engines.facts import Standing
from leasectl.errors import LeaseError, NotFound
from leasectl.model import Claimant, Process
from leasectl.system.clock import earliest


class SeveralQueues:
    """The part of a `Waiter` in several queues that doesn't depend on how many it needs.

    Args:
        engine: The store.
        claimant: Who asks.
        until: As `Engine.waiter` has it.

    Attributes:
        waiters: One in each queue that it waits in still, by type, in the order of the request.
    """

    def __init__(self, engine: Engine, claimant: Claimant, *, until: float | None) -> None:
        request = claimant.request
        self._engine = engine
        self.waiters: dict[str, PoolWaiter] = {
            each: engine.waiter(
                claimant._replace(request=request._replace(type=each, other_types=())), until=until
            )
            for each in request.types
        }
        self._all = tuple(self.waiters.values())

    def standings(self) -> list[Standing]:
        """How it stands in each pool that is still there.

        Raises:
            NotFound: All have gone.
        """
        found, gone = [], NotFound()
        for each in self.waiters.values():
            try:
                found.append(each.standing())
            except NotFound as reason:  # the next claim finds that out
                gone = reason
        if not found:
            raise gone
        return found

    def listen(self, processes: Sequence[Process]) -> tuple[frozenset[int], bool]:
        fds: frozenset[int] = frozenset()
        any_ended = False
        for each in self.waiters.values():
            more, ended = each.listen(processes)
            fds, any_ended = fds | more, any_ended or ended
            processes = ()  # one of them watches is enough
        return fds, any_ended

    def heard(self, woken: Set[int]) -> bool:
        ended = [each.heard(woken) for each in self.waiters.values()]
        return any(ended)

    def dequeue(self, why: str = "") -> None:
        failure: LeaseError | None = None
        for each in self.waiters.values():
            try:
                each.dequeue(why)
            except LeaseError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        for each in self._all:
            each.close()


def summed(standings: Sequence[Standing], *, position: int) -> Standing:
    """Return how it stands in several pools together, with the holder that holds longest."""
    held = [each for each in standings if each.longest_holder is not None]
    longest = min(held, key=lambda each: each.longest_since, default=standings[0])
    # Where all is held it isn't the pace that is waited for, unless that is so in each.
    some_free = [each for each in standings if each.held < each.capacity]
    dues = [each.next_grant_at for each in some_free or standings]
    return longest._replace(
        position=position,
        others=sum(each.others for each in standings),
        held=sum(each.held for each in standings),
        capacity=sum(each.capacity for each in standings),
        next_grant_at=None if None in dues else earliest(*dues),
    )
