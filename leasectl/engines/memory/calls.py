"""Who is called to claim, and who hasn't come: in pools in memory.

Whoever makes a claim possible wakes the one who may make it, and the next one as a witness. That
one looks, and again when the first has had its time, unless something has happened by then.
"""

from __future__ import annotations

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import StockedPool
from leasectl.system.clock import Clock


class Calls:
    """The calls of one process's pools. Whoever calls its methods holds the store's lock.

    Args:
        clock: Where times come from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def come(self, pool: StockedPool, place: Place) -> None:
        """A waiter looks: it runs, so its ticket counts. Those that didn't come are suspended."""
        pool.called.pop(place, None)
        if pool.queue.is_suspended(place):
            pool.queue.resume(place)
        latest = self._clock.elapsed() - SUSPENDED_AFTER_SECONDS
        for each, called_at in list(pool.called.items()):
            if called_at > latest:
                break
            if self.could_claim(pool, each):
                del pool.called[each]
                pool.queue.suspend(each)
                self.call_those_behind(pool, each)

    def next_suspension(self, pool: StockedPool) -> float | None:
        """When somebody is to look who has come by then, on the elapsed clock; None for never."""
        latest = self._clock.elapsed() - SUSPENDED_AFTER_SECONDS
        for called_at in pool.called.values():
            if called_at > latest:
                return called_at + SUSPENDED_AFTER_SECONDS
        return None

    def could_claim(self, pool: StockedPool, place: Place) -> bool:
        """Tell whether it is a place's turn, and there is enough for it."""
        if not pool.queue.is_turn_of(place):
            return False
        if place.name is not None:
            return place.name in pool.free
        kept = sum(name in pool.free for name in pool.queue.kept_from(place))
        return len(pool.free) - kept >= place.ticket.claimant.request.count

    def call(self, pool: StockedPool, place: Place) -> None:
        """Wake a waiter that may have something to claim now, and if so a witness: the next."""
        if self.could_claim(pool, place):
            pool.called.setdefault(place, self._clock.elapsed())
            witness = pool.queue.next_to(place)
            if witness is not None:
                witness.wake()
        place.wake()

    def call_those_behind(self, pool: StockedPool, place: Place) -> None:
        """Wake those whose turn it is as a place counts no longer, unless they must wait on."""
        for each in pool.queue.behind(place):
            if pool.expiries or self.could_claim(pool, each):
                self.call(pool, each)
