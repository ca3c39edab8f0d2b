"""What is seen of a queue in etcd, and of a claim, each as it is at one revision.

A ticket looks whether it is its turn, and what there is to take; both take one request. Where
tickets count with priorities a look has to see all of them, which the first finds out by a second.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    count,
    read,
    read_all,
    read_created_before,
    read_last_created,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.rank import in_order, precedes, priorities
from leasectl.engines.etcd.records import parse_settings, parse_ticket
from leasectl.errors import CorruptState
from leasectl.model import Request, Ticket


class QueueView(NamedTuple):
    """All that a ticket's turn depends on, as it was at one revision.

    Args:
        revision: Etcd's.
        own: The ticket, if it is still there.
        before: The nearest ticket before it that could use all that it could; where the pool has a
            pace also one that could use that, as the resource it waits for is free.
        pool: The pool, if there is one.
        grants: The number of its last grant, if there was one.
        resources: How many there are.
        expired: How many claims have run out and are still written down.
        died: How many tickets have gone by themselves, of which nobody has told.
        page: What is free, as far as the ticket wants it and in the order in which it is taken; or
            the named resource, free or not, if it wants that.
        named: If no ticket is before it in that sense, those that are and wait for a name each,
            which it can't have.
        others: Likewise, but whatever it wants itself: all that are before it.
        rank: The key that says what the ticket counts with; None for one that counts with 0.
        priority: What it counts with.
        is_ranked: Some ticket has such a key.
        settings: How the pool grants, if it was written down.
        pace: What its grants owe its pace, likewise.
    """

    revision: int
    own: KeyValue | None
    before: KeyValue | None
    pool: KeyValue | None
    grants: KeyValue | None
    resources: int
    expired: int
    page: tuple[KeyValue, ...]
    named: tuple[KeyValue, ...] = ()
    others: tuple[KeyValue, ...] = ()
    died: int = 0
    rank: KeyValue | None = None
    priority: int = 0
    is_ranked: bool = False
    settings: KeyValue | None = None
    pace: KeyValue | None = None

    @property
    def is_paced(self) -> bool:
        """Whether the pool has a pace."""
        return self.settings is not None and parse_settings(self.settings).pace_seconds > 0

    def with_freed(self, freed: Sequence[KeyValue]) -> QueueView:
        """The same after resources have become free."""
        newer = [kv for kv in freed if kv.mod_revision > self.revision]
        # By name: what was free may have been taken in between, and goes by another key now.
        page = {name_in(kv): kv for kv in (*self.page, *_without(newer, self.named))}
        return self._replace(page=tuple(sorted(page.values(), key=lambda kv: kv.key)))


class Change(NamedTuple):
    """What a look writes first, as `rank.rise` makes it; without its guards it only looks."""

    guards: Sequence[Json] = ()
    then: Sequence[Json] = ()


NO_CHANGE = Change()


def look(
    gateway: Gateway,
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    *,
    is_turn: bool = False,
    named: int = 0,
    is_ranked: bool = False,
    change: Change = NO_CHANGE,
) -> QueueView:
    """Look for a ticket that is attached to an etcd lease, mostly with one request.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of that etcd lease.
        is_turn: It was its turn before, as it stays where all count the same.
        named: How many tickets that wait for a name each were before it then.
        is_ranked: Some ticket didn't count with 0 when it last looked.
        change: What is written before, in the same transaction.

    Raises:
        EtcdLeaseGone: That etcd lease has gone, to which the change would attach something.
    """
    if not named and not is_ranked:
        better = _last(keys, ticket)
        view, found = _look(gateway, keys, ticket, etcd_lease_id, better, change=change)
        if not view.is_ranked:
            if is_turn and not (found and view.is_paced):
                return view._replace(before=None, named=())
            if not found or view.before is not None:
                return view
        is_ranked, change = view.is_ranked, NO_CHANGE
    # Some of those before it don't count: all have to be looked at to tell who does.
    is_paced = False
    while True:
        view, _ = _look(
            gateway,
            keys,
            ticket,
            etcd_lease_id,
            _all(keys, ticket, is_ranked=is_ranked),
            more=named,
            is_paced=is_paced,
            change=change,
        )
        uses_pace = view.is_paced and bool(view.others)
        if len(view.named) <= named and view.is_ranked <= is_ranked and uses_pace <= is_paced:
            return view._replace(page=_without(view.page, view.named))
        named, is_ranked, is_paced = max(named, len(view.named)), view.is_ranked, view.is_paced
        change = NO_CHANGE


def name_wanted(kv: KeyValue) -> str | None:
    """The one resource that a ticket waits for; None where it could use any.

    That is also what those of a version before say, and any that can't be read.
    """
    try:
        return parse_ticket(kv).name
    except CorruptState:
        return None


def _last(keys: Keys, ticket: Ticket) -> Json:
    return read_last_created(keys.tickets(ticket.claimant.request.type), before=ticket.number)


def _all(keys: Keys, ticket: Ticket, *, is_ranked: bool) -> Json:
    tickets = keys.tickets(ticket.claimant.request.type)
    return read_all(tickets) if is_ranked else read_created_before(tickets, ticket.number)


def _look(
    gateway: Gateway,
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    better: Json,
    *,
    more: int = 0,
    is_paced: bool = False,
    change: Change = NO_CHANGE,
) -> tuple[QueueView, tuple[KeyValue, ...]]:
    """What there is to see, by some of the better tickets, and those.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of its etcd lease.
        better: Reads the better ones, and others if need be.
        more: How much more is to be read of what is free than is asked for.
        is_paced: Who waits for a resource that is free waits for the pace, and so is before it.
        change: What is written before.
    """
    request = ticket.claimant.request
    pool_type = request.type
    if request.name is None:
        page = read_all(keys.frees(pool_type), limit=request.count + more)
    else:
        page = read(keys.resource(pool_type, request.name))
    reads = (
        read(keys.ticket(pool_type, etcd_lease_id)),
        better,
        count(keys.queueds(pool_type)),
        read_all(keys.ranks(pool_type), keys_only=True),
        read(keys.pool(pool_type)),
        read(keys.settings(pool_type)),
        read(keys.pace(pool_type)),
        read(keys.grants(pool_type)),
        count(keys.resources(pool_type)),
        count(keys.helds(pool_type)),
        count(keys.alives(pool_type)),
        page,
        *((read_all(keys.frees(pool_type), keys_only=True),) if is_paced else ()),
    )
    # What can't happen isn't sent: a branch costs as much as the other, taken or not.
    otherwise = reads if change.guards else ()
    outcome = gateway.commit(change.guards, [*change.then, *reads], otherwise)
    own, tickets, queued, ranks, pool, settings, pace, grants, *rest = outcome.answers
    resources, held, alive = (each.count for each in rest[:3])
    found, *frees = rest[3:]
    counted = priorities(ranks.items)
    priority = counted.get(etcd_lease_id, 0)
    better_ones = [
        kv
        for kv in in_order(tickets.items, counted)
        if precedes(kv, counted, priority, ticket.number)
    ]
    free = {name_in(kv) for each in frees for kv in each.items}
    before, others = _before(request, better_ones[::-1], free)
    view = QueueView(
        revision=outcome.revision,
        own=own.first,
        before=before,
        named=others if request.name is None else (),
        others=others,
        pool=pool.first,
        grants=grants.first,
        resources=resources,
        expired=held - alive,
        page=found.items,
        died=queued.count - tickets.count,  # etcd counts all tickets, whatever it leaves out
        rank=next((kv for kv in ranks.items if etcd_lease_id_in(kv) == etcd_lease_id), None),
        priority=priority,
        is_ranked=bool(counted),
        settings=settings.first,
        pace=pace.first,
    )
    return view, tickets.items


def _before(
    request: Request, nearest_first: Sequence[KeyValue], free: Set[str]
) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
    """The nearest that could use all that is asked for; if there is none, those for a name each.

    That is, or for one of those that are free.
    """
    named = []
    for ticket in nearest_first:
        wanted = name_wanted(ticket)
        if wanted is None or wanted == request.name or wanted in free:
            return ticket, ()
        named.append(ticket)
    return None, tuple(named)


def _without(page: Sequence[KeyValue], named: Sequence[KeyValue]) -> tuple[KeyValue, ...]:
    """What is free and not waited for by name."""
    names = set(map(name_wanted, named))
    return tuple(kv for kv in page if name_in(kv) not in names) if named else tuple(page)


class ClaimView(NamedTuple):
    """A claim as it stands in etcd at one revision.

    Args:
        held: The claim, if it is written down.
        is_alive: Whether it is still good.
        renewed: The date of its last renewal.
        gone: What has been written down since it has gone, if that was too early.
    """

    held: KeyValue | None
    is_alive: bool
    renewed: KeyValue | None
    gone: Found


def claim_reads(keys: Keys, claim_id: ClaimId) -> tuple[Json, ...]:
    """What a request has to read of a claim; `parse_claim_view` takes the answers."""
    return (
        read(keys.held(*claim_id)),
        read(keys.alive(*claim_id)),
        read(keys.renewed(*claim_id)),
        read_all(keys.gone(*claim_id)),
    )


def parse_claim_view(answers: Sequence[Found]) -> ClaimView:
    """What came of `claim_reads`."""
    held, alive, renewed, gone = answers
    return ClaimView(held.first, alive.first is not None, renewed.first, gone)
