"""Read everything that a ticket's turn depends on, at one revision.

A ticket looks whether it is its turn, and what there is to take; both take one request. Where that
doesn't tell, as tickets count with priorities, or wait for some of the resources only, a look reads
more, which the first finds out by a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    Outcome,
    count,
    read,
    read_all,
    read_created_before,
    read_last_created,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.competing import Rival, Supply, compete, leave, rival
from leasectl.engines.etcd.queues.possible import Room
from leasectl.engines.etcd.queues.rank import in_order, precedes, priorities
from leasectl.engines.etcd.queues.view import NO_NEEDS, SURE, Needs, QueueView
from leasectl.engines.possible import want_of
from leasectl.model import Request, Ticket


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
    needs: Needs = NO_NEEDS,
    change: Change = NO_CHANGE,
) -> QueueView:
    """Look for a ticket that is attached to an etcd lease, mostly with one request.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of that etcd lease.
        is_turn: It was its turn before, as it stays where all count the same.
        needs: What it had to read when it last looked.
        change: What is written before, in the same transaction.

    Raises:
        EtcdLeaseGone: That etcd lease has gone, to which the change would attach something.
    """
    request = ticket.claimant.request
    if request.where:
        needs = needs.and_also(Needs(better=True, stock=True))
    elif is_turn and request.name is not None and needs in SURE:
        needs = NO_NEEDS
    while True:
        view = _look(gateway, keys, ticket, etcd_lease_id, needs, change=change)
        if is_turn and not needs.better and view.needs in SURE:
            return view._replace(before=None, others=())
        if needs.and_also(view.needs) == needs:
            return view
        needs, change = needs.and_also(view.needs), NO_CHANGE


def _look(
    gateway: Gateway,
    keys: Keys,
    ticket: Ticket,
    etcd_lease_id: int,
    needs: Needs,
    *,
    change: Change,
) -> QueueView:
    """What there is to see by what is read, and what has to be read as well to be sure of it.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        ticket: Its own.
        etcd_lease_id: Of its etcd lease.
        needs: What is read.
        change: What is written before.
    """
    request = ticket.claimant.request
    reads = (
        read(keys.ticket(request.type, etcd_lease_id)),
        *queue_reads(keys, request, _better(keys, ticket, needs), needs),
    )
    # What can't happen isn't sent: a branch costs as much as the other, taken or not.
    otherwise = reads if change.guards else ()
    outcome = gateway.commit(change.guards, [*change.then, *reads], otherwise)
    own, *found = outcome.answers
    view = parse_queue(request, etcd_lease_id, ticket.number, outcome.revision, found, needs)
    return view._replace(own=own.first)


def entry_reads(keys: Keys, request: Request, room: Room | None) -> tuple[Json, ...]:
    """What the transaction that puts a ticket has to read last; `parse_entry` takes the answers.

    Args:
        keys: Where things are.
        request: What the ticket asks for.
        room: What is known of its pool, which is guarded; None for nothing.
    """
    tickets = read_last_created(keys.tickets(request.type), limit=2)
    return queue_reads(keys, request, tickets, NO_NEEDS, room)


def parse_entry(
    request: Request, etcd_lease_id: int, outcome: Outcome, room: Room | None
) -> QueueView:
    """What came of `entry_reads`.

    Args:
        request: What the ticket asks for that was put, with a priority of 0.
        etcd_lease_id: That it is attached to.
        outcome: Of that transaction.
        room: As `entry_reads` has it.
    """
    number = outcome.revision
    return parse_queue(request, etcd_lease_id, number, number, outcome.answers, NO_NEEDS, room)


def queue_reads(
    keys: Keys, request: Request, tickets: Json, needs: Needs, room: Room | None = None
) -> tuple[Json, ...]:
    """What has to be read of a queue; `parse_queue` takes the answers.

    Args:
        keys: Where things are.
        request: What the ticket asks for that looks.
        tickets: Reads the tickets that matter.
        needs: What is read beside that.
        room: What is known of the pool; None for nothing.
    """
    unknown = _room_reads(keys, request.type) if room is None else ()
    reads = (*_pool_reads(keys, request.type), *unknown)
    return (tickets, *reads, *_supply_reads(keys, request, needs))


@lru_cache(maxsize=64)  # the same for each ticket
def _pool_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """Those that don't depend on the ticket."""
    return (
        count(keys.queueds(pool_type)),
        read_all(keys.ranks(pool_type), keys_only=True),
        read(keys.settings(pool_type)),
        read(keys.pace(pool_type)),
        read(keys.grants(pool_type)),
        count(keys.helds(pool_type)),
        count(keys.alives(pool_type)),
        read_all(keys.comings(pool_type)),
    )


@lru_cache(maxsize=64)
def _room_reads(keys: Keys, pool_type: str) -> tuple[Json, ...]:
    """Those of what changes only with the pool."""
    return (
        read(keys.pool(pool_type)),
        count(keys.resources(pool_type)),
        count(keys.all_closed(pool_type)),
    )


def parse_queue(
    request: Request,
    etcd_lease_id: int,
    number: int,
    revision: int,
    answers: Sequence[Found],
    needs: Needs,
    room: Room | None = None,
) -> QueueView:
    """What came of `queue_reads`, for the ticket of that number.

    Args:
        request: What it asks for.
        etcd_lease_id: That it is attached to.
        number: Its own.
        revision: At which that was read.
        answers: What was found.
        needs: What was read.
        room: What was known of the pool.
    """
    tickets, queued, ranks, settings, pace, grants, held, alive, comings, *found = answers
    if room is None:
        pool, resources, closed, *found = found
        there, takers = pool.first, resources.count - closed.count
    else:
        there, takers = room
    supply, page, is_closed = _parse_supply(request, needs, takers, found)
    counted = priorities(ranks.items)
    priority = counted.get(etcd_lease_id, 0)
    better = [
        rival(kv)
        for kv in in_order(tickets.items, counted)
        if precedes(kv, counted, priority, number)
    ]
    want = want_of(request)
    competition = compete(want, better, supply, is_paced=needs.free)
    view = QueueView(
        revision=revision,
        own=next((kv for kv in tickets.items if kv.create_revision == number), None),
        before=competition.before,
        is_for_time=competition.is_for_time,
        others=competition.others,
        leave=leave(want, competition.others, supply),
        pool=there,
        grants=grants.first,
        is_closed=is_closed,
        expired=held.count - alive.count,
        page=page,
        died=queued.count - tickets.count,  # etcd counts all tickets, whatever it leaves out
        rank=next((kv for kv in ranks.items if etcd_lease_id_in(kv) == etcd_lease_id), None),
        priority=priority,
        is_ranked=bool(counted),
        settings=settings.first,
        pace=pace.first,
        comings=comings.items,
        tickets=tickets.count,
    )
    if request.name is None:
        view = view._replace(page=tuple(kv for kv in page if view.leave.has(name_in(kv))))
    return view._replace(needs=_needed(request, better, competition.passes, view))


def _better(keys: Keys, ticket: Ticket, needs: Needs) -> Json:
    """Read the better tickets, and others if need be; or the nearest of them."""
    tickets = keys.tickets(ticket.claimant.request.type)
    if needs.is_ranked:
        return read_all(tickets)
    if needs.better:
        return read_created_before(tickets, ticket.number)
    return read_last_created(tickets, before=ticket.number)


def _supply_reads(keys: Keys, request: Request, needs: Needs) -> Iterator[Json]:
    """Read what there is to take, as far as it matters; `_parse_supply` takes the answers."""
    frees = keys.frees(request.type)
    if request.name is not None:
        yield read(keys.resource(request.type, request.name))
        yield read(keys.closed(request.type, request.name))
    else:
        # What is kept by what it is may be any number of them.
        yield read_all(frees, limit=0 if needs.stock else request.count + needs.named)
    if needs.free:
        yield read_all(frees, keys_only=True)
    if needs.stock:
        from leasectl.engines.etcd.members.stock import stock_reads

        yield from stock_reads(keys, request.type)


def _parse_supply(
    request: Request, needs: Needs, takers: int, answers: Sequence[Found]
) -> tuple[Supply, tuple[KeyValue, ...], bool]:
    """What came of that, with what is free or the named resource, and whether that is closed."""
    rest = iter(answers)
    page = next(rest).items
    is_closed = request.name is not None and next(rest).first is not None
    free = frozenset(map(name_in, next(rest).items)) if needs.free else None
    if not needs.stock:
        return Supply(takers, None, free), page, is_closed
    from leasectl.engines.etcd.members.stock import parse_stock

    return Supply(takers, parse_stock(request.type, list(rest)), free), page, is_closed


def _needed(request: Request, better: Sequence[Rival], passes: bool, view: QueueView) -> Needs:
    """What has to be read to be sure of what was seen."""
    named = sum(each.want.name is not None for each in view.others)
    by_what = [each.kv for each in better if each.want.where]
    is_unsure = view.before is None or view.is_for_time or view.before in by_what
    return Needs(
        better=view.is_ranked or (view.before is None and bool(better)),
        is_ranked=view.is_ranked,
        named=named if request.name is None else 0,
        free=view.is_paced and bool(view.others),
        stock=bool(by_what) and is_unsure,
        may_change=passes,
    )
