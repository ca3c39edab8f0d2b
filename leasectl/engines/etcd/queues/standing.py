"""A waiter's position and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    KeyValue,
    count,
    read,
    read_all,
    read_created_before,
    read_first_created,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import check_there
from leasectl.engines.etcd.queues.competing import Supply, met_of, rival
from leasectl.engines.etcd.queues.pace import Owed, pace_reads, parse_pace
from leasectl.engines.etcd.queues.rank import in_order, priorities
from leasectl.engines.etcd.records import parse_claim
from leasectl.engines.facts import Standing
from leasectl.model import Request
from leasectl.system.clock import Clock


class EtcdStandings:
    """How things stand in the pools below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._clock = clock

    def standing(
        self, request: Request, ticket: int, *, passes: bool, left: Callable[[Owed], float]
    ) -> Standing:
        """Like `Waiter.standing`, for any ticket.

        Args:
            request: What it waits for.
            ticket: Its number.
            passes: It has passed better ones; else all that are before it count.
            left: How many seconds there are until the next grant, as far as its waiter can tell.
        """
        keys, pool_type, is_any = self._keys, request.type, request.name is None and not passes
        pool, resources, frees, closed, comings, oldest, before, tickets, ranks, *paced = (
            self._gateway.read(
                read(keys.pool(pool_type)),
                count(keys.resources(pool_type)),
                count(keys.frees(pool_type)),
                count(keys.all_closed(pool_type)),
                count(keys.comings(pool_type)),
                read_first_created(keys.helds(pool_type)),
                # Etcd can't count by that.
                read_created_before(keys.tickets(pool_type), ticket, keys_only=is_any),
                count(keys.tickets(pool_type)),
                count(keys.ranks(pool_type)),
                *pace_reads(keys, pool_type),
            ).answers
        )
        check_there(self._gateway, keys, pool_type, pool.first)
        better = self._better(pool_type, ticket) if ranks.count else before.items
        if not is_any:
            better = self._competing(request, better, takers=resources.count - closed.count)
        unheld = self._unheld(pool_type) if closed.count or comings.count else 0
        owed = parse_pace(paced)
        seconds = left(owed)
        standing = Standing(
            position=1 + len(better),
            others=max(0, tickets.count - 1),
            held=resources.count - frees.count - unheld,
            capacity=resources.count,
            next_grant_at=self._clock.elapsed() + seconds if seconds else None,
            pace_seconds=owed.settings.pace_seconds,
        )
        if oldest.first is None:
            return standing
        claim = parse_claim(oldest.first)
        return standing._replace(
            longest_holder=claim.holder_identity, longest_since=claim.acquire_time
        )

    def _better(self, pool_type: str, ticket: int) -> list[KeyValue]:
        """The tickets that are served before one, by its number."""
        tickets, ranks = self._gateway.read(
            read_all(self._keys.tickets(pool_type)),
            read_all(self._keys.ranks(pool_type), keys_only=True),
        ).answers
        order = in_order(tickets.items, priorities(ranks.items))
        own = next((n for n, kv in enumerate(order) if kv.create_revision == ticket), len(order))
        return order[:own]

    def _competing(
        self, request: Request, better: Sequence[KeyValue], *, takers: int
    ) -> list[KeyValue]:
        """Those of the better tickets that could use what one could, and aren't passed."""
        rivals = list(map(rival, better))
        supply = Supply(takers)
        if any(each.want.where for each in rivals):
            from leasectl.engines.etcd.members.stock import parse_stock, stock_reads

            found = self._gateway.read(*stock_reads(self._keys, request.type)).answers
            supply = Supply(takers, parse_stock(request.type, found))
        return [
            each.kv
            for each in met_of(rivals, supply)
            if request.name is None or supply.could_use(each.want, request.name)
        ]

    def _unheld(self, pool_type: str) -> int:
        """How many nobody holds, and nobody may have."""
        from leasectl.engines.etcd.members.records import parse_bound

        (bound,) = self._gateway.read(read_all(self._keys.all_bound(pool_type))).answers
        return sum(parse_bound(kv).is_free for kv in bound.items)
