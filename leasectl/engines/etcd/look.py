"""What is seen of a queue in etcd, and of a claim, each as it is at one revision.

A ticket looks whether it is its turn, and what there is to take; both take one request.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import parse_ticket
from leasectl.errors import CorruptState
from leasectl.model import Request, Ticket


class QueueView(NamedTuple):
    """All that a ticket's turn depends on, as it was at one revision.

    Args:
        revision: Etcd's.
        own: The ticket, if it is still there.
        before: The nearest ticket before it that could use all that it could.
        pool: The pool, if there is one.
        grants: The number of its last grant, if there was one.
        resources: How many there are.
        expired: How many claims have run out and are still written down.
        page: What is free, as far as the ticket wants it and in the order in which it is taken; or
            the named resource, free or not, if it wants that.
        named: If no ticket is before it in that sense, those that are and wait for a name each,
            which it can't have.
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

    def with_freed(self, freed: Sequence[KeyValue]) -> QueueView:
        """The same after resources have become free."""
        newer = [kv for kv in freed if kv.mod_revision > self.revision]
        page = {kv.key: kv for kv in (*self.page, *_without(newer, self.named))}
        return self._replace(page=tuple(page[key] for key in sorted(page)))


def look(
    gateway: Gateway,
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    *,
    is_turn: bool = False,
    named: int = 0,
) -> QueueView:
    """Look for a ticket that is attached to an etcd lease, mostly with one request.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of that etcd lease.
        is_turn: It was its turn before, as it stays.
        named: How many tickets that wait for a name each were before it then.
    """
    if not named:
        view, better = _look(gateway, keys, ticket, etcd_lease_id, _last(keys, ticket))
        if is_turn:
            return view._replace(before=None, named=())
        if not better or view.before is not None:
            return view
    # Some of those before it don't count: all have to be looked at to tell who does.
    while True:
        view, _ = _look(gateway, keys, ticket, etcd_lease_id, _all(keys, ticket), more=named)
        if len(view.named) <= named:
            return view._replace(page=_without(view.page, view.named))
        named = len(view.named)


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


def _all(keys: Keys, ticket: Ticket) -> Json:
    return read_created_before(keys.tickets(ticket.claimant.request.type), ticket.number)


def _look(
    gateway: Gateway, keys: Keys, ticket: Ticket, etcd_lease_id: int, better: Json, *, more: int = 0
) -> tuple[QueueView, tuple[KeyValue, ...]]:
    """What there is to see, by some of the better tickets, and those.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of its etcd lease.
        better: Reads the better ones.
        more: How much more is to be read of what is free than is asked for.
    """
    request = ticket.claimant.request
    pool_type = request.type
    if request.name is None:
        page = read_all(keys.frees(pool_type), limit=request.count + more)
    else:
        page = read(keys.resource(pool_type, request.name))
    outcome = gateway.read(
        read(keys.ticket(pool_type, etcd_lease_id)),
        better,
        read(keys.pool(pool_type)),
        read(keys.grants(pool_type)),
        count(keys.resources(pool_type)),
        count(keys.helds(pool_type)),
        count(keys.alives(pool_type)),
        page,
    )
    own, tickets, pool, grants, resources, held, alive, found = outcome.answers
    before, named = _before(request, tickets.items)
    view = QueueView(
        revision=outcome.revision,
        own=own.first,
        before=before,
        named=named,
        pool=pool.first,
        grants=grants.first,
        resources=resources.count,
        expired=held.count - alive.count,
        page=found.items,
    )
    return view, tickets.items


def _before(
    request: Request, better: Sequence[KeyValue]
) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
    """The nearest that could use all that is asked for; if there is none, those for a name each."""
    named = []
    for ticket in sorted(better, key=lambda each: -each.create_revision):
        wanted = name_wanted(ticket)
        if wanted is None or wanted == request.name:
            return ticket, ()
        if request.name is None:
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
