"""The transaction that turns a ticket into a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.claims.writes import granted_claim
from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    count,
    created_at,
    delete,
    end_of,
    present,
    put,
    revision_in,
    unchanged,
    unwritten_since,
)
from leasectl.engines.etcd.key_values import name_in, number_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.queues.rank import none_better_since
from leasectl.engines.etcd.queues.view import QueueView
from leasectl.engines.etcd.records import Claim, Free
from leasectl.model import Ticket


class Making(NamedTuple):
    """A claim that is to be made.

    Args:
        claim: What is written; its revision isn't known yet.
        held: Where.
        guards: What has to be so still.
        then: What is done then.
    """

    claim: Claim
    held: str
    guards: list[Json]
    then: list[Json]


def making(
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    renewed: float,
    view: QueueView,
    chosen: Sequence[Free],
    *,
    now: float,
    level: float | None,
) -> Making:
    """How to make a claim; the arguments are those of `EtcdClaims.make`.

    Args:
        keys: Where things are.
        now: Wall clock, seconds since the epoch.
    """
    assert view.pool is not None
    claimant, grants = ticket.claimant, view.grants
    pool_type = claimant.request.type
    claim = claim_of(keys, ticket, etcd_lease_id, grants, chosen, now=now)
    claim_id = ClaimId(pool_type, etcd_lease_id)
    guards = [
        created_at(keys.ticket(*claim_id), ticket.number),
        unchanged(keys.pool(pool_type), view.pool.mod_revision),
        unchanged(keys.settings(pool_type), revision_in(view.settings)),
        unchanged(keys.grants(pool_type), revision_in(grants)),
        *none_better_since(keys, pool_type, ticket.number, view.priority, view.revision),
        *_none_freed(keys, view),
        *(unchanged(free.key, free.mod_revision) for free in chosen),
        *(present(keys.life(pool_type, free.name)) for free in chosen if free.has_life),
    ]
    then = [
        delete(keys.ticket(*claim_id)),
        delete(keys.waiting(claimant.claim_key, etcd_lease_id)),
        delete(keys.queued(*claim_id)),
        *granted_claim(keys, pool_type, claim, renewed),
    ]
    if view.rank is not None:
        then.append(delete(view.rank.key))
    if level is not None:
        then.append(put(keys.pace(pool_type), str(level)))
        then.append(count(keys.tickets(pool_type)))
    for index, free in enumerate(chosen):
        then.append(delete(free.key))
        then.append(put(keys.resource(pool_type, free.name), str(index)))
    return Making(claim, keys.held(*claim_id), guards, then)


def _none_freed(keys: Keys, view: QueueView) -> list[Json]:
    """Guard: nothing is free by now for those who are better and only wait for that."""
    if not (view.others and view.is_paced):
        return []
    assert view.pool is not None
    frees = keys.frees(name_in(view.pool))
    return [unwritten_since(frees, end_of(frees), view.revision)]


def claim_of(
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    grants: KeyValue | None,
    chosen: Sequence[Free],
    *,
    now: float,
) -> Claim:
    """What is written of a claim, whose revision isn't known yet.

    Args: as of `making`.
        grants: The number of the pool's last grant.
    """
    claimant = ticket.claimant
    identity = claimant.holder_identity
    return Claim(
        etcd_lease_id=etcd_lease_id,
        claim_key=keys.with_state_id(claimant.claim_key),
        holder_identity=identity,
        names=tuple(free.name for free in chosen),
        indices=tuple(range(len(chosen))),
        transitions=tuple(
            free.transitions + (free.last_holder not in (None, identity)) for free in chosen
        ),
        revision=0,
        ticket=ticket.number,
        grant=1 if grants is None else 1 + int(number_in(grants)),
        acquire_time=now,
        lease_duration_seconds=claimant.request.ttl_seconds,
        labels=claimant.request.labels,
        holder_pid=claimant.holder_pid,
        release_after_seconds=claimant.request.release_after_seconds,
    )
