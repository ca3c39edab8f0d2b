"""What is seen of a queue in etcd, as it is at one revision.

A ticket looks whether it is its turn, and what there is to take; both take one request. Where that
doesn't tell, as tickets count with priorities, or wait for some of the resources only, a look reads
more, which the first finds out by a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.competing import Leave, Rival, Supply, compete, leave, rival
from leasectl.engines.etcd.queues.rank import in_order, precedes, priorities
from leasectl.engines.etcd.records import parse_settings
from leasectl.engines.matching import want_of
from leasectl.model import Request, Ticket


class Needs(NamedTuple):
    """What has to be read to tell what a ticket may have, beside what is read for each.

    Args:
        better: All better tickets, not the nearest alone.
        is_ranked: Some ticket doesn't count with 0, so those that came later may be better.
        named: How many of them wait for a name each: as much more of what is free.
        free: The names of all that is free.
        stock: What there is in the pool.
        may_change: Who is better and keeps nothing from it now may do so later.
    """

    better: bool = False
    is_ranked: bool = False
    named: int = 0
    free: bool = False
    stock: bool = False
    may_change: bool = False

    def and_also(self, more: Needs) -> Needs:
        """What these and others need."""
        return Needs(
            better=self.better or more.better,
            is_ranked=self.is_ranked or more.is_ranked,
            named=max(self.named, more.named),
            free=self.free or more.free,
            stock=self.stock or more.stock,
            may_change=self.may_change or more.may_change,
        )


NO_NEEDS = Needs()
# Once it is its turn and these have told that, nobody can come before it any more.
_SURE = (NO_NEEDS, Needs(better=True))


class QueueView(NamedTuple):
    """All that a ticket's turn depends on, as it was at one revision.

    Args:
        revision: Etcd's.
        own: The ticket, if it is still there.
        before: The nearest ticket before it that keeps all from it that it could use; where the
            pool has a pace also one that waits for that alone.
        pool: The pool, if there is one.
        grants: The number of its last grant, if there was one.
        expired: How many claims have run out and are still written down.
        died: How many tickets have gone by themselves, of which nobody has told.
        page: What is free, as far as the ticket may have it and in the order in which it is taken;
            or the named resource, free or not, if it wants that.
        is_for_time: That ticket keeps nothing but the pool's time from it.
        others: If no ticket is before it in that sense, the better ones: each keeps from it what
            it could use itself, as long as it can be met at all.
        leave: What these leave to it.
        needs: What had to be read for that.
        is_closed: The named resource is one of those.
        rank: The key that says what the ticket counts with; None for one that counts with 0.
        priority: What it counts with.
        is_ranked: Some ticket has such a key.
        settings: How the pool grants, if it was written down.
        pace: What its grants owe its pace, likewise.
        comings: What comes to the pool by itself.
    """

    revision: int
    own: KeyValue | None
    before: KeyValue | None
    pool: KeyValue | None
    grants: KeyValue | None
    expired: int
    page: tuple[KeyValue, ...]
    is_for_time: bool = False
    others: tuple[Rival, ...] = ()
    leave: Leave = Leave()
    needs: Needs = NO_NEEDS
    is_closed: bool = False
    died: int = 0
    rank: KeyValue | None = None
    priority: int = 0
    is_ranked: bool = False
    settings: KeyValue | None = None
    pace: KeyValue | None = None
    comings: tuple[KeyValue, ...] = ()

    @property
    def is_paced(self) -> bool:
        """Whether the pool has a pace."""
        return self.settings is not None and parse_settings(self.settings).pace_seconds > 0

    def could_meet(self, request: Request) -> bool:
        """Tell whether what is in the pool could meet the ticket's request, held or not."""
        want, supply = want_of(request), self.leave.supply
        if request.name is not None:
            is_open = bool(self.page) and not self.is_closed
            return is_open and supply.could_use(want, request.name)
        return supply.could_meet(want, request.count)

    def with_freed(self, freed: Sequence[KeyValue]) -> QueueView:
        """The same after resources have become free."""
        newer = [kv for kv in freed if kv.mod_revision > self.revision]
        # By name: what was free may have been taken in between, and goes by another key now.
        page = {name_in(kv): kv for kv in (*self.page, *newer) if self.leave.has(name_in(kv))}
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
    elif is_turn and request.name is not None and needs in _SURE:
        needs = NO_NEEDS
    while True:
        view = _look(gateway, keys, ticket, etcd_lease_id, needs, change=change)
        if is_turn and not needs.better and view.needs in _SURE:
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
    pool_type = request.type
    reads = (
        read(keys.ticket(pool_type, etcd_lease_id)),
        _better(keys, ticket, needs),
        count(keys.queueds(pool_type)),
        read_all(keys.ranks(pool_type), keys_only=True),
        read(keys.pool(pool_type)),
        read(keys.settings(pool_type)),
        read(keys.pace(pool_type)),
        read(keys.grants(pool_type)),
        count(keys.resources(pool_type)),
        count(keys.all_closed(pool_type)),
        count(keys.helds(pool_type)),
        count(keys.alives(pool_type)),
        read_all(keys.comings(pool_type)),
        *_supply_reads(keys, request, needs),
    )
    # What can't happen isn't sent: a branch costs as much as the other, taken or not.
    otherwise = reads if change.guards else ()
    outcome = gateway.commit(change.guards, [*change.then, *reads], otherwise)
    own, tickets, queued, ranks, pool, settings, pace, grants, *rest = outcome.answers
    resources, closed, held, alive = (each.count for each in rest[:4])
    comings, *found = rest[4:]
    supply, page, is_closed = _parse_supply(request, needs, resources - closed, found)
    counted = priorities(ranks.items)
    priority = counted.get(etcd_lease_id, 0)
    better = [
        rival(kv)
        for kv in in_order(tickets.items, counted)
        if precedes(kv, counted, priority, ticket.number)
    ]
    want = want_of(request)
    competition = compete(want, better, supply, is_paced=needs.free)
    view = QueueView(
        revision=outcome.revision,
        own=own.first,
        before=competition.before,
        is_for_time=competition.is_for_time,
        others=competition.others,
        leave=leave(want, competition.others, supply),
        pool=pool.first,
        grants=grants.first,
        is_closed=is_closed,
        expired=held - alive,
        page=page,
        died=queued.count - tickets.count,  # etcd counts all tickets, whatever it leaves out
        rank=next((kv for kv in ranks.items if etcd_lease_id_in(kv) == etcd_lease_id), None),
        priority=priority,
        is_ranked=bool(counted),
        settings=settings.first,
        pace=pace.first,
        comings=comings.items,
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
