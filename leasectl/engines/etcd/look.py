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
    read_last_created,
)
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.model import Ticket


class QueueView(NamedTuple):
    """All that a ticket's turn depends on, as it was at one revision.

    Args:
        revision: Etcd's.
        own: The ticket, if it is still there.
        before: The nearest ticket before it.
        pool: The pool, if there is one.
        grants: The number of its last grant, if there was one.
        resources: How many there are.
        expired: How many claims have run out and are still written down.
        page: What is free, as far as the ticket wants it and in the order in which it is taken; or
            the named resource, free or not, if it wants that.
    """

    revision: int
    own: KeyValue | None
    before: KeyValue | None
    pool: KeyValue | None
    grants: KeyValue | None
    resources: int
    expired: int
    page: tuple[KeyValue, ...]

    def with_freed(self, freed: Sequence[KeyValue]) -> QueueView:
        """The same after resources have become free."""
        newer = [kv for kv in freed if kv.mod_revision > self.revision]
        page = {kv.key: kv for kv in (*self.page, *newer)}
        return self._replace(page=tuple(page[key] for key in sorted(page)))


def look(gateway: Gateway, keys: Keys, ticket: Ticket, etcd_lease_id: int) -> QueueView:
    """Look for a ticket that is attached to an etcd lease, with one request."""
    request = ticket.claimant.request
    pool_type = request.type
    if request.name is None:
        page = read_all(keys.frees(pool_type), limit=request.count)
    else:
        page = read(keys.resource(pool_type, request.name))
    outcome = gateway.read(
        read(keys.ticket(pool_type, etcd_lease_id)),
        read_last_created(keys.tickets(pool_type), before=ticket.number),
        read(keys.pool(pool_type)),
        read(keys.grants(pool_type)),
        count(keys.resources(pool_type)),
        count(keys.helds(pool_type)),
        count(keys.alives(pool_type)),
        page,
    )
    own, before, pool, grants, resources, held, alive, found = outcome.answers
    return QueueView(
        revision=outcome.revision,
        own=own.first,
        before=before.first,
        pool=pool.first,
        grants=grants.first,
        resources=resources.count,
        expired=held.count - alive.count,
        page=found.items,
    )


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
