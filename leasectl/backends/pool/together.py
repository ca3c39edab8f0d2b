"""Wait for resources of each of several pools, and claim them together.

It is *next* in a pool if no better ticket keeps from it what it needs there. Where it is next
before it is so in all pools, its ticket is parked: others pass it, and it keeps its position. Once
it is next in all, its tickets count in all, and it waits only until each pool has enough for it.

- *No resource idles longer than needed*: one stays free for it only while it is next in all its
  pools, that is until the next holders in the others are done.
- *No starvation*: among equal priorities, later requests never come before it, and once it is next
  in all pools, none passes it.
- *No deadlock*: all such requests have the same order in all pools that they share (`enqueue`). The
  best of them waits for no other of them, and holds nothing while it waits.

Where it isn't next, its ticket isn't parked. It keeps nothing more from those behind it than the
ticket that keeps everything from it, and so it is woken as all are.
"""

from __future__ import annotations

from leasectl.backends.pool.several import SeveralQueues, summed
from leasectl.engines.contract import Engine, Outlook, PoolWaiter
from leasectl.engines.facts import Standing
from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Lease
from leasectl.system.clock import Clock, earliest

# In a row, as a pace that was paid counts only until it sleeps. What it saw may not have changed by
# lost races, and then nothing wakes it.
_MOST_TRIES, _LOOK_AGAIN_SECONDS = 3, 0.1


class TogetherWaiter(SeveralQueues):
    """One request for resources of each of several types, as `Waiter`.

    Args:
        engine, claimant, until: As `SeveralQueues` has them.
        clock: The engine's clock.
    """

    def __init__(
        self, engine: Engine, claimant: Claimant, *, until: float | None, clock: Clock
    ) -> None:
        super().__init__(engine, claimant, until=until)
        self._clock = clock
        self._is_unsure = False  # whether a claim may have been made whose outcome isn't known

    @property
    def has_place(self) -> bool:
        return all(each.has_place for each in self.waiters.values())

    def check(self) -> None:
        for each in self.waiters.values():
            each.check()

    def enqueue(self, *, again: bool = False) -> None:
        """Implements `Waiter.enqueue`; every request begins with the first of its types by name."""
        if not again:
            self.check()  # all, before a ticket is in a queue
        first: PoolWaiter | None = None
        for pool_type in sorted(self.waiters):
            waiter = self.waiters[pool_type]
            try:
                waiter.enqueue(again=again, beside=first)
            except BackendUnreachable as error:
                error.asked = error.asked or first is not None
                raise
            first = first or waiter

    def claim(self) -> Outlook:
        waiters = list(self.waiters.values())
        if self._is_unsure:
            leases = self._claim_all(waiters)
            if leases is not None:
                return Outlook(leases)
        for _ in range(_MOST_TRIES):
            outlooks = [each.look() for each in waiters]
            is_next = [each.is_head for each in outlooks]
            for waiter, outlook in zip(waiters, outlooks):
                if outlook.impossible is None:
                    waiter.park(outlook.is_head and not all(is_next))
            if not all(each.is_ready for each in outlooks):
                break
            leases = self._claim_all(waiters)
            if leases is not None:
                return Outlook(leases)
        else:
            return Outlook(look_again_at=self._clock.elapsed() + _LOOK_AGAIN_SECONDS)
        impossible = [each.impossible for each in outlooks if each.impossible is not None]
        # A pace counts only where nothing else is missing.
        dues = [each.next_grant_at for each in outlooks if each.next_grant_at is not None]
        is_paced = bool(dues) and all(each.is_ready or each.next_grant_at for each in outlooks)
        return Outlook(
            is_head=any(is_next),
            is_behind=any(each.is_behind for each in outlooks),
            look_again_at=earliest(*(each.look_again_at for each in outlooks)),
            next_grant_at=max(dues) if is_paced else None,
            impossible="; ".join(impossible) or None,
        )

    def standing(self) -> Standing:
        """How it stands in all the pools together; the position is the worst that it has."""
        found = self.standings()
        return summed(found, position=max(each.position for each in found))

    def _claim_all(self, waiters: list[PoolWaiter]) -> tuple[Lease, ...] | None:
        self._is_unsure = True
        leases = self._engine.claim_all(waiters)
        self._is_unsure = False
        return leases
