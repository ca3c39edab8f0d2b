"""The order by priority, and the guards that keep it.

A ticket that counts with another priority than 0 has a key beside it, below ``rank/``, attached to
the same etcd lease; one without counts with 0. Those keys sort
as the tickets are served: by what is left of a large number without the priority, and then by the
ticket's number. Who puts a ticket doesn't know that yet, and writes "~", which sorts after all
numbers: of equal priority nobody comes later than a newcomer. Who has aged knows its number, and
writes that.

So all keys that anybody who is better than a ticket could write sort before one that can be told,
and the claim is guarded by one comparison of that range: nothing in it is newer than what was seen.
Who counts with less than 0 is also passed by those who have no such key, so that its claim is
guarded by all tickets.

Ageing: a waiter writes its own key anew, by its own clock, and looks in the same transaction. A
priority never falls, but when the pool's settings change, and then in that transaction; all who
wait look after it. So who waits behind a ticket finds that ahead of it until it has gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    absent,
    created_at,
    delete,
    none_created_after,
    put,
    unchanged,
    unwritten_since,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, unreadable
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import parse_ticket

# Larger than any priority, however long somebody waits.
_HIGHEST = 10**9
_NO_NUMBER = "~"


def encode_rank(priority: int, number: int | None) -> str:
    """Write what a ticket counts with, and its number if it is known; `priority_in` reads it."""
    written = _NO_NUMBER if number is None else f"{number:020d}"
    return f"{_HIGHEST - priority:010d}/{written}"


def priority_in(kv: KeyValue) -> int:
    """What the ticket counts with that a key below ``rank/`` stands beside."""
    try:
        return _HIGHEST - int(kv.key.split("/")[-3])
    except (ValueError, IndexError) as error:
        raise unreadable(kv, error) from error


def priorities(ranks: Sequence[KeyValue]) -> dict[int, int]:
    """What tickets count with that don't count with 0, by the ids of their etcd leases."""
    return {etcd_lease_id_in(kv): priority_in(kv) for kv in ranks}


def in_order(tickets: Sequence[KeyValue], counted: Mapping[int, int]) -> list[KeyValue]:
    """Tickets in the order in which they are served."""
    return sorted(
        tickets, key=lambda kv: (-counted.get(etcd_lease_id_in(kv), 0), kv.create_revision)
    )


def precedes(ticket: KeyValue, counted: Mapping[int, int], priority: int, number: int) -> bool:
    """Tell whether a ticket is better than one that has a number and counts with a priority."""
    theirs = counted.get(etcd_lease_id_in(ticket), 0)
    return (-theirs, ticket.create_revision) < (-priority, number)


def none_better_since(
    keys: Keys, pool_type: str, number: int, priority: int, revision: int
) -> list[Json]:
    """Guards: since a revision nobody has got in before a ticket.

    Args:
        keys: Where things are.
        pool_type: Of the queue.
        number: The ticket's.
        priority: What it counts with.
        revision: Etcd's, of a look that has shown all who are better.
    """
    ranks, tickets = keys.ranks(pool_type), keys.tickets(pool_type)
    guards = [unwritten_since(ranks, ranks + encode_rank(priority, number), revision)]
    if priority < 0:
        guards.append(none_created_after(tickets, revision))
    return guards


def rise(
    keys: Keys,
    claim_id: ClaimId,
    number: int,
    priority: int,
    rank: KeyValue | None,
    settings: KeyValue | None,
) -> tuple[list[Json], list[Json]]:
    """Have a ticket count with another priority: the guards for that, and what is written.

    Args:
        keys: Where things are.
        claim_id: The ticket's.
        number: Likewise.
        priority: What it counts with from then on.
        rank: Its key so far.
        settings: The pool's, by which it is so.
    """
    new = keys.rank(claim_id.pool_type, encode_rank(priority, number), claim_id.etcd_lease_id)
    before = () if rank is None else (rank,)
    guards = [
        created_at(keys.ticket(*claim_id), number),
        unchanged(keys.settings(claim_id.pool_type), settings.mod_revision if settings else 0),
        absent(new),
        *(unchanged(kv.key, kv.mod_revision) for kv in before),
    ]
    put_new = put(new, "", etcd_lease_id=claim_id.etcd_lease_id)
    return guards, [*(delete(kv.key) for kv in before), put_new]


def without_ageing(
    keys: Keys, pool_type: str, tickets: Sequence[KeyValue], ranks: Sequence[KeyValue]
) -> list[Json]:
    """What has tickets count with the priorities that they asked for, in a transaction."""
    numbers = {etcd_lease_id_in(kv): kv for kv in tickets}
    then: list[Json] = []
    for kv in ranks:
        ticket = numbers.get(etcd_lease_id_in(kv))
        if ticket is None:
            continue  # it goes with its etcd lease
        priority = parse_ticket(ticket).priority
        if priority == priority_in(kv):
            continue
        then.append(delete(kv.key))
        if priority:
            etcd_lease_id, rank = (
                etcd_lease_id_in(kv),
                encode_rank(priority, ticket.create_revision),
            )
            then.append(
                put(keys.rank(pool_type, rank, etcd_lease_id), "", etcd_lease_id=etcd_lease_id)
            )
    return then
