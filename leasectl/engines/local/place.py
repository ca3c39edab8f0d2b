"""How a waiter keeps its place in a queue whose order changes while it waits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from leasectl.engines.local.order import Rank
from leasectl.engines.local.queues import Waiting
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.wants import is_enough_for
from leasectl.system.clock import earliest

# A grant makes the first larger, and what becomes free without one the second.
_FREE = (
    "SELECT last_grant, (SELECT count(*) FROM resource WHERE resource.type = pool.type "
    "AND owner IS NULL) AS free FROM pool WHERE type = ?"
)


class LocalPlace:
    """What one waiter does so that all keep in step with an order that changes.

    Each watches who is next before it, and is woken by who comes in between: as that comes, and as
    that ages. Nobody else tells who ages, so each looks itself when it is going to pass another.

    Args:
        store: The pools.
        pool_type: Of which of them.
        number: Of its ticket.
    """

    def __init__(self, store: LocalStore, pool_type: str, number: int) -> None:
        self._store = store
        self._queues = store.queues
        self._type = pool_type
        self._rank = Rank(0, number)  # at the last look; so it is as long as all are alike
        self._overtakes_at: float | None = None
        self._passed_on: tuple[int, int, list[str]] | None = None  # what it has told of last

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
        if not is_new and not is_head:
            self._pass_on()
        self._rank = order.rank(ticket)
        self._overtakes_at = earliest(*(order.overtakes_at(ticket, each) for each in others))
        return self._overtakes_at

    def _pass_on(self) -> None:
        """Wake who may have something to claim: an older version goes by numbers, and may have
        woken this one in their stead.

        Of the same only once: whoever waits in several queues would wake in one who wakes it in
        another, and that without end.
        """
        ((last_grant, free),) = self._store.state.query(_FREE, self._type)
        called = self._called() if free else []
        if called and self._passed_on != (last_grant, free, called):
            self._queues.call(called)
        self._passed_on = last_grant, free, called

    def _called(self) -> list[str]:
        """The pipes of the best for each want of which something is free, and of that for any."""
        called: dict[tuple[str | None, str], str] = {}
        with closing(self._queues.in_order(self._type)) as tickets:
            for each in tickets:
                want = each.name, each.where
                if each.suspended or want in called:
                    continue
                if want == (None, "") or is_enough_for(self._store.state, self._type, each):
                    called[want] = each.pipe
                if want == (None, ""):
                    break
        return list(called.values())
