"""Check that a request can be met, and put its ticket.

The transaction that puts a ticket also reads what its first look would. And what was once seen to
be in a pool is remembered: whatever changes that writes the pool anew, so who remembers it puts a
ticket only in a pool that is as it was then, and looks again if it isn't.
"""

from __future__ import annotations

from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    absent,
    present,
    put,
    read,
    unchanged,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.pools.listing import no_pool
from leasectl.engines.etcd.queues.look import entry_reads, parse_entry
from leasectl.engines.etcd.queues.possible import Room, check_possible
from leasectl.engines.etcd.queues.rank import encode_rank
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.records import check_count, encode_ticket
from leasectl.model import Request
from leasectl.system.clock import Clock


class EtcdEntrance:
    """The way into the queues below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of which there is one for each ticket.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, events: EtcdEvents, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._events = events
        self._clock = clock
        self._rooms: dict[str, Room] = {}  # by type: as it was when it was last looked at

    def check(self, request: Request) -> None:
        """Implements `Waiter.check`."""
        self._rooms.pop(request.type, None)
        room = check_possible(self._gateway, self._keys, self._events, request)
        if room is not None:
            self._rooms[request.type] = room

    def enter(self, own: EtcdTicket, *, again: bool) -> None:
        """Put a ticket; mostly it is seen at once how it stands. As `Waiter.enqueue`."""
        request = own.request
        if not again and not self._has_room(request):
            self.check(request)
        room = None if again else self._rooms.get(request.type)
        own.note_sent(self._clock.elapsed())
        self._gateway.grant(own.etcd_lease_id, own.ttl_seconds)
        while not self._put(own, room):
            if room is None:
                raise no_pool(self._gateway, self._keys, request.type)
            self.check(request)
            room = None

    def _has_room(self, request: Request) -> bool:
        """Tell whether it could be met by a pool as that is remembered.

        Raises:
            InvalidRequest: It is for more than can be granted at once.
        """
        room = self._rooms.get(request.type)
        is_any = request.name is None and not request.where
        if not is_any or room is None:
            return False
        check_count(request)
        return request.count <= room.takers

    def _put(self, own: EtcdTicket, room: Room | None) -> bool:
        """Put a ticket on its etcd lease.

        Args:
            own: The ticket.
            room: What is known of the pool; None if it only has to be there.

        Returns:
            Whether it is there; else the pool isn't as it was known, or isn't there.
        """
        keys, claimant, pool_type = self._keys, own.claimant, own.request.type
        etcd_lease_id, now = own.etcd_lease_id, self._clock.wall()
        key, pool = keys.ticket(pool_type, etcd_lease_id), keys.pool(pool_type)
        record = encode_ticket(claimant, keys.with_state_id(claimant.claim_key), now)
        priority = own.request.priority
        rank = keys.rank(pool_type, encode_rank(priority, None), etcd_lease_id)
        there = present(pool) if room is None else unchanged(pool, room.pool.mod_revision)
        reads = () if priority else entry_reads(keys, own.request, room)
        try:
            outcome = self._events.commit(
                [absent(key), there],
                [
                    put(key, record, etcd_lease_id=etcd_lease_id),
                    put(
                        keys.waiting(claimant.claim_key, etcd_lease_id),
                        pool_type,
                        etcd_lease_id=etcd_lease_id,
                    ),
                    put(keys.queued(pool_type, etcd_lease_id), record),
                    *([put(rank, "", etcd_lease_id=etcd_lease_id)] if priority else []),
                    *reads,
                ],
                [read(key)],
                events=[event_facts.queued(claimant, now=now)],
            )
        except EtcdLeaseGone:
            raise own.expired() from None
        if outcome.succeeded:
            own.note_put(outcome.revision)
            if reads:
                own.note_entry(parse_entry(own.request, etcd_lease_id, outcome, room))
            return True
        (found,) = outcome.answers
        if found.first is not None:  # by an earlier try, whose answer was lost
            own.note_put(found.first.create_revision)
        return found.first is not None
