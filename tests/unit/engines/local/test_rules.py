"""What the database of the embedded pool answers, compared with the rules on random pools."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pytest

from leasectl.engines.local.queues import Waiting
from leasectl.engines.local.standing import standing_of
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.waiter import _ahead_of
from leasectl.engines.local.wants import is_any_next
from leasectl.engines.local.witness import LocalWitness
from leasectl.engines.rules.membership import Member, Properties
from leasectl.engines.rules.possible import Want, unmet
from leasectl.engines.rules.turns import (
    Rank,
    blocks,
    effective_priority,
    left_to,
    position,
    shares,
)
from leasectl.model import Request, Where
from leasectl.state.in_memory import MemoryState
from leasectl.state.rows import encode_where
from leasectl.system.clock import Clock
from tests.kit import recorded
from tests.kit.support import ManualClock

POOLS = 20_000
NAMES = "abcd"
WHERES: tuple[Where, ...] = ((("zone", "eu", True),), (("zone", "eu", False),))
ZONES: tuple[Properties, ...] = ((), (("zone", "eu"),), (("zone", "us"),))
WANTS = (*[Want()] * 5, *map(Want, "abx"), *(Want(where=each) for each in WHERES))


_TABLES = ["pool", "resource", "member", "ticket", "suspended", "ranked_ticket", "pool_setting"]


class Ticket(NamedTuple):
    """A ticket as the rules see it."""

    number: int
    want: Want
    count: int  # type: ignore[assignment]  # as in Request
    priority: int
    waited: float
    is_suspended: bool

    @property
    def request(self) -> Request:
        return Request("T", self.count, self.want.name, where=self.want.where)

    def rank(self, aging: float) -> Rank:
        return Rank(-effective_priority(self.priority, self.waited, aging), self.number)


class Resource(NamedTuple):
    """A resource as the rules see it."""

    member: Member
    fence: int
    is_held: bool


def could_use(want: Want, resource: Resource) -> bool:
    return want.could_use(resource.member.name, resource.member.properties)


class RandomPool:
    """A pool "T", written into a database and known to the rules.

    Args:
        chance: Where its contents come from.
        state: The database.
        now: On the elapsed clock.
    """

    def __init__(self, chance: random.Random, state: MemoryState, now: float) -> None:
        self.aging = chance.choice([0.0, 0.0, 10.0])
        self.resources = [
            Resource(
                Member(name, "T", cordoned=chance.random() < 0.15, properties=chance.choice(ZONES)),
                chance.randint(1, 3),
                chance.random() < 0.4,
            )
            for name in NAMES
            if chance.random() < 0.9
        ]
        is_ranked = bool(self.aging) or chance.random() < 0.3
        waits = sorted((chance.choice([0.0, 4.0, 9.0, 10.0, 25.0]) for _ in range(5)), reverse=True)
        tickets = [
            Ticket(
                number,
                chance.choice(WANTS),
                1,
                chance.choice([-1, 0, 0, 1, 2]) if is_ranked else 0,
                waited,
                chance.random() < 0.15,
            )
            for number, waited in enumerate(waits[: chance.randint(1, 5)], start=1)
        ]
        counts = [1 if each.want.name else chance.choice([1, 1, 2, 3]) for each in tickets]
        tickets = [each._replace(count=count) for each, count in zip(tickets, counts)]
        self.tickets = sorted(tickets, key=lambda each: each.rank(self.aging))
        self._write(state, now, is_ranked=is_ranked)

    @property
    def free(self) -> list[Resource]:
        open_ones = [each for each in self.resources if self._is_free(each)]
        return sorted(open_ones, key=lambda each: (each.fence, each.member.name))

    def _is_free(self, resource: Resource) -> bool:
        return not resource.is_held and resource.member.takes_holders

    @property
    def members(self) -> list[Member]:
        return [each.member for each in self.resources]

    def could_use(self, want: Want, name: str) -> bool:
        return any(each.member.name == name and could_use(want, each) for each in self.resources)

    def better(self, ticket: Ticket) -> list[Ticket]:
        """Those that count, the best first."""
        before = self.tickets[: self.tickets.index(ticket)]
        return [each for each in before if not each.is_suspended]

    def _write(self, state: MemoryState, now: float, *, is_ranked: bool) -> None:
        db = state.db
        for table in _TABLES:
            db.execute(f"DELETE FROM {table}")
        db.execute("INSERT INTO pool VALUES ('T', ?, 9, 0)", (len(self.resources),))
        db.execute("INSERT INTO pool_setting VALUES ('T', 0.0, 1, ?, 0.0)", (self.aging,))
        db.executemany(
            "INSERT INTO resource (name, type, fence, lease_transitions, owner, closed, labels) "
            "VALUES (?, 'T', ?, 0, ?, ?, '')",
            [
                (
                    each.member.name,
                    each.fence,
                    "holder" if each.is_held else None,
                    each.member.cordoned and not each.is_held,
                )
                for each in self.resources
            ],
        )
        db.executemany(
            "INSERT INTO member (name, by_default, cordoned, leaves, joined, properties) "
            "VALUES (?, 0, ?, 0, 0, ?)",
            [
                (each.name, each.cordoned, json.dumps(dict(each.properties)))
                for each in self.members
                if each.cordoned or each.properties
            ],
        )
        for each in self.tickets:
            db.execute(
                "INSERT INTO ticket VALUES ('T', ?, ?, '', ?, 0.0, NULL, ?)",
                (each.number, f"h{each.number}", each.count, f"p{each.number}"),
            )
            db.execute(
                "UPDATE handle SET name = ?, where_properties = ? WHERE id = ?",
                (each.want.name, encode_where(each.want.where), f"h{each.number}"),
            )
            if each.is_suspended:
                db.execute("INSERT INTO suspended VALUES ('T', ?)", (each.number,))
            if is_ranked:
                db.execute(
                    "INSERT INTO ranked_ticket VALUES ('T', ?, ?, ?)",
                    (each.number, each.priority, now - each.waited),
                )


def taken(tickets: list[Ticket], free: list[Resource]) -> list[Ticket]:
    """Return the tickets that may take all that they ask for."""

    def ticket_could_use(ticket: Ticket, resource: Resource) -> bool:
        return could_use(ticket.want, resource)

    found = shares(tickets, free, ticket_could_use)
    return [ticket for ticket, share in found if len(share) >= ticket.count]


@pytest.mark.once
def test_database_answers_as_rules_on_random_pools(manual_clock: ManualClock) -> None:
    chance, state = random.Random(42), MemoryState()
    clock, now = manual_clock.clock, manual_clock.clock.elapsed()
    for number in range(1, 6):
        recorded.record(state, f"h{number}", Request("T"), now=now)
    store = LocalStore(state, lost=lambda *_: None, clock=clock)
    witness = LocalWitness(state, lost=lambda *_: None, clock=clock)
    seen = Counter[str]()
    with closing(state), state.transaction():
        for _ in range(POOLS):
            pool = RandomPool(chance, state, now)
            seen.update(compare(pool, store, clock))
            counting = [each for each in pool.tickets if not each.is_suspended]
            wanted = [each.number for each in taken(counting, pool.free)]
            assert [each.ticket.number for each in witness._able_in("T")] == wanted
            seen["could claim"] += bool(wanted)
    assert min(seen[each] for each in ("blocked", "free", "unmet", "next", "could claim")) > 1000


def compare(pool: RandomPool, store: LocalStore, clock: Clock) -> Iterator[str]:
    """Compare the answers for each ticket of a pool; yield the kinds of answers there were."""
    queues = store.queues
    with closing(queues.in_order("T")) as tickets:
        waiting = {each.number: each for each in tickets}
    assert list(waiting) == [each.number for each in pool.tickets]
    for ticket in pool.tickets:
        own, request = waiting[ticket.number], ticket.request
        why = store.memberships().why_unmet(request, len(pool.resources))
        assert why == unmet(request, pool.members)
        better = pool.better(ticket)
        wants = [each.want for each in better]
        standing = standing_of(store, request, ticket.number)
        assert standing.position == position(ticket.want, wants, pool.could_use)
        if why is not None:
            yield "unmet"
            continue
        _, *before = queues.up_to("T", ticket.number)
        blocker, others = _ahead_of(own, before, queues)
        blocking = [e for e in better if blocks(e.want, ticket.want, pool.could_use)]
        assert (blocker and blocker.number) == (blocking[-1].number if blocking else None)
        if blocking:
            yield "blocked"
            continue
        assert [each.number for each in others] == [each.number for each in better[::-1]]
        particular: Sequence[Waiting] = others if ticket.want.name is None else ()
        found = store.free_resources(request, particular)
        free = [each.member.name for each in left_to(ticket.want, wants, pool.free, could_use)]
        assert [row["name"] for row in found][: ticket.count] == free[: ticket.count]
        assert (len(found) > ticket.count) == (len(free) > ticket.count)
        yield "free" if free else "nothing free"
        is_next = bool(taken(better, pool.free))
        assert is_any_next(store.state, "T", others) == is_next
        yield "next" if is_next else "none next"
