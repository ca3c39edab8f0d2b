"""Who was called to claim and hasn't come.

Whoever makes a claim possible wakes the one who may make it, and the next one as a witness. That
one looks, and again when the first has had its time, unless something has happened by then.
"""

from __future__ import annotations

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import StockedPool
from leasectl.system.clock import Clock, earliest


class Calls:
    """The calls of one process's pools. Whoever calls its methods holds the store's lock.

    Args:
        clock: Where times come from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def come(self, pool: StockedPool, place: Place) -> None:
        """A waiter looks: it runs, so its ticket counts. Those that didn't come are suspended."""
        called_at = pool.called.get(place)
        if called_at is not None and called_at <= self._clock.elapsed():
            del pool.called[place]
        if pool.queue.is_suspended(place):
            pool.queue.resume(place)
            self.join(pool, place)
        latest = self._clock.elapsed() - SUSPENDED_AFTER_SECONDS
        for each in [each for each, called_at in pool.called.items() if called_at <= latest]:
            del pool.called[each]
            if self.could_claim(pool, each):
                pool.queue.suspend(each)
                self.call_those_behind(pool, each)
            elif self.has_enough(pool, each):
                self.note(pool, each)  # it isn't late before the pace lets it

    def join(self, pool: StockedPool, place: Place) -> None:
        """A place counts from now on, or for more; those whom it has passed look when they rise."""
        for each in pool.queue.below(place):
            each.wake()

    def leave(self, pool: StockedPool, place: Place) -> None:
        """A place has left its queue: if it was a witness, another is."""
        pool.called.pop(place, None)
        for each in pool.called:
            witness = pool.queue.next_to(each)
            if witness is not None:
                witness.wake()

    def next_suspension(self, pool: StockedPool, place: Place) -> float | None:
        """When a place is to look who has come by then, on the elapsed clock; None for never.

        For who is to come in a while, by the pace, only its witness looks, not all who wait.
        """
        now = self._clock.elapsed()
        latest = now - SUSPENDED_AFTER_SECONDS
        times = [
            called_at
            for each, called_at in pool.called.items()
            if called_at > latest and (called_at <= now or pool.queue.next_to(each) is place)
        ]
        called_at = earliest(*times)
        return None if called_at is None else called_at + SUSPENDED_AFTER_SECONDS

    def could_claim(self, pool: StockedPool, place: Place) -> bool:
        """Tell whether it is a place's turn, there is enough for it, and the pace lets it."""
        if pool.next_grant_at is not None or not self.has_enough(pool, place):
            return False
        return not self.leaves_time_to_better(pool, place)

    def leaves_time_to_better(self, pool: StockedPool, place: Place) -> bool:
        """Tell whether the next grant is a better one's that has enough, for another name."""
        if not pool.settings.pace_seconds:
            return False
        return any(self.has_enough(pool, each) for each in pool.queue.better_than(place))

    def has_enough(self, pool: StockedPool, place: Place) -> bool:
        """Tell whether it is a place's turn, and there is enough for it, now or by the pace."""
        if not pool.queue.is_turn_of(place):
            return False
        if place.name is not None:
            return place.name in pool.free
        kept = pool.queue.kept_from(place)
        if place.want.where or kept.wheres:
            free = sum(pool.is_free_for(place, name, kept) for name in pool.free)
        else:
            free = len(pool.free) - sum(name in pool.free for name in kept.names)
        return free >= place.ticket.claimant.request.count

    def call(self, pool: StockedPool, place: Place) -> None:
        """Wake a waiter that may have something to claim now, and if so a witness: the next."""
        if self.has_enough(pool, place):
            self.note(pool, place)
        place.wake()

    def note(self, pool: StockedPool, place: Place) -> None:
        """From now on, or when the pace lets it, a place could claim; a witness is to see to it."""
        if place not in pool.called:
            pool.called[place] = pool.next_grant_at or self._clock.elapsed()
            witness = pool.queue.next_to(place)
            if witness is not None:
                witness.wake()

    def call_those_behind(self, pool: StockedPool, place: Place) -> None:
        """Wake those whose turn it is as a place counts no longer, unless they must wait on."""
        is_paced = bool(pool.settings.pace_seconds)
        for each in pool.queue.behind(place, whatever=is_paced):
            if pool.expiries or self.has_enough(pool, each):
                self.call(pool, each)
        if pool.settings.aging_seconds:
            follower = pool.queue.follower(place)
            if follower is not None:
                follower.wake()  # nobody else tells it when it becomes better than others
