"""How a waiter keeps its place in a queue whose order changes while it waits."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.local.order import Rank
from leasectl.engines.local.queues import LocalQueues, Waiting
from leasectl.system.clock import earliest


class LocalPlace:
    """What one waiter does so that all keep in step with an order that changes.

    Each watches who is next before it, and is woken by who comes in between: as that comes, and as
    that ages. Nobody else tells who ages, so each looks itself when it is going to pass another.

    Args:
        queues: What its ticket is in.
        pool_type: Of which pool.
        number: Of its ticket.
    """

    def __init__(self, queues: LocalQueues, pool_type: str, number: int) -> None:
        self._queues = queues
        self._type = pool_type
        self._rank = Rank(0, number)  # at the last look; so it is as long as all are alike
        self._overtakes_at: float | None = None

    def keep(
        self, ticket: Waiting, others: Sequence[Waiting], *, is_new: bool, is_head: bool
    ) -> float | None:
        """Wake who is to know where a ticket is now that stays in the queue.

        Args:
            ticket: Which.
            others: Whom its waiter watches now.
            is_new: It was just put, perhaps before some.
            is_head: It is its turn.

        Returns:
            When it passes the first of the others, on the elapsed clock; None for never.
        """
        order = self._queues.order(self._type)
        if is_new:
            self._queues.wake_behind(self._type, ticket, is_more_free=False)
        elif order.is_over(self._overtakes_at) or order.rank(ticket) != self._rank:
            # Also who was woken by the first of several that have passed others at one instant.
            self._queues.wake_behind(self._type, ticket)
            self._queues.wake_behind(self._type, ticket, place=self._rank)
        elif not is_head:
            # Who was woken instead of the best, by an older version: that goes by numbers.
            self._queues.wake_for(self._type, order.free_name())
        self._rank = order.rank(ticket)
        self._overtakes_at = earliest(*(order.overtakes_at(ticket, each) for each in others))
        return self._overtakes_at
