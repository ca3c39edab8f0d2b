"""What a ticket sees of its queue at one revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.queues.competing import Leave, Rival
from leasectl.engines.etcd.records import parse_settings
from leasectl.engines.possible import want_of
from leasectl.model import Request


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
SURE = (NO_NEEDS, Needs(better=True))

_MANY = 4


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
        tickets: How many there are, whoever is before whom.
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
    tickets: int = 0

    @property
    def has_many(self) -> bool:
        """Whether there are so many tickets that they are gone later than a watch begins."""
        return self.tickets > _MANY

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
