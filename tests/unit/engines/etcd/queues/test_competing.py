"""What better tickets in etcd leave to one: the same as on the embedded pool."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.members.stock import Stock
from leasectl.engines.etcd.queues.competing import Rival, Supply, compete, leave, rival
from leasectl.engines.etcd.records import encode_ticket
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.waiter import _ahead_of, put_ticket
from leasectl.engines.membership import Member
from leasectl.engines.possible import Want, unmet, want_of
from leasectl.model import Claimant, Request, Where
from leasectl.state.in_memory import record
from leasectl.system.clock import Clock
from tests.kit.made_up_store import MadeUpStore

EU: Where = (("region", "eu", True),)
NOT_EU: Where = (("region", "eu", False),)
BIG: Where = (("size", "big", True),)
NAMES = ("a", "b", "c", "d")
WANTED = (
    *(Request("T", count) for count in (1, 2, 3)),
    *(Request("T", name=name) for name in NAMES),
    *(
        Request("T", count, where=where)
        for where in (EU, NOT_EU, BIG, EU + BIG)
        for count in (1, 2)
    ),
)


def ticket(number: int, request: Request) -> KeyValue:
    claimant = Claimant(f"handle-{number}", "me@host", request)
    return KeyValue(f"/p/ticket/T/{number:016x}", encode_ticket(claimant, "k", 1.0), number, number)


def drawn_stock(chance: random.Random) -> Stock:
    members = {}
    for name in NAMES:
        region, size = chance.choice(("eu", "us", "")), chance.choice(("big", ""))
        properties = tuple(p for p in (("region", region), ("size", size)) if p[1])
        cordoned = chance.random() < 0.2
        members[name] = Member(name, "T", cordoned=cordoned, properties=properties)
    return Stock(members)


def as_supply(stock: Stock, free: frozenset[str] | None = None) -> Supply:
    takers = sum(each.takes_holders for each in stock.members.values())
    return Supply(takers, stock, free)


class Embedded:
    """The same queue of the embedded pool, without those that can't be met."""

    def __init__(self) -> None:
        self._made_up = MadeUpStore(Clock())
        self._made_up.pools.create_pool("T", NAMES)
        self._state = self._made_up.state
        self._store = LocalStore(self._state, lost=self._made_up.lost, clock=self._made_up.clock)

    def claimable(
        self, better: Sequence[Request], own: Request, stock: Stock
    ) -> frozenset[str] | None:
        """Return what a request may have of all that is open; None where it isn't its turn."""
        self._made_up.members.update(NAMES, lambda each, _: _as_in(stock, each))
        with self._state.transaction() as db:
            db.execute("DELETE FROM ticket")
            db.execute("DELETE FROM suspended")
            for number, request in enumerate((*better, own), 1):
                claimant = Claimant(f"handle-{number}", "me@host", request)
                record(self._state, claimant)
                put_ticket(self._store.queues, claimant, number, "none", clock=self._made_up.clock)
            _, *ahead = self._store.queues.up_to("T", 1 + len(better))
            blocker, particular = _ahead_of(own, ahead, self._store.queues)
            if blocker is not None:
                return None
            others = particular if own.name is None else ()
            rows = self._store.free_resources(own._replace(count=len(NAMES)), others)
            return frozenset(row["name"] for row in rows)


def _as_in(stock: Stock, member: Member) -> Member:
    drawn = stock.members[member.name]
    return member._replace(cordoned=drawn.cordoned, properties=drawn.properties)


def check_same(chance: random.Random, embedded: Embedded) -> None:
    stock = drawn_stock(chance)
    open_names = [each.name for each in stock.members.values() if each.takes_holders]
    possible = [each for each in WANTED if unmet(each, stock.members.values()) is None]
    own = chance.choice(possible or [Request("T")])
    better = chance.choices(WANTED, k=chance.randint(0, 5))
    rivals = [rival(ticket(number, each)) for number, each in enumerate(better, 1)]
    supply = as_supply(stock)
    competition = compete(want_of(own), rivals, supply, is_paced=False)
    claimable = embedded.claimable([each for each in better if each in possible], own, stock)
    assert (competition.before is None) == (claimable is not None)
    if competition.before is None:
        has = leave(want_of(own), competition.others, supply).has
        assert claimable == frozenset(filter(has, open_names))
        assert competition.passes == any(
            each not in possible and each.name is None for each in better
        )


def test_it_is_the_same_as_of_the_embedded_pool() -> None:
    embedded = Embedded()
    for seed in range(500):
        try:
            check_same(random.Random(seed), embedded)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


class TestForThePace:
    """Who could claim but for the pace is before whoever could use something else."""

    STOCK = Stock(
        {
            "a": Member("a", "T", properties=(("region", "eu"),)),
            "b": Member("b", "T", properties=(("region", "eu"),)),
            "c": Member("c", "T"),
        }
    )

    def before(self, *better: Request, free: str) -> KeyValue | None:
        """Who is before one that wants what isn't in Europe."""
        rivals = [rival(ticket(number, each)) for number, each in enumerate(better, 1)]
        supply = as_supply(self.STOCK, frozenset(free))
        competition = compete(Want(where=NOT_EU), rivals, supply, is_paced=True)
        assert competition.is_for_time is (competition.before is not None)
        return competition.before

    def test_one_is_that_has_enough(self) -> None:
        wanted = Request("T", 2, where=EU)
        assert self.before(wanted, free="abc") == ticket(1, wanted)

    def test_one_is_not_that_waits_for_more(self) -> None:
        assert self.before(Request("T", 2, where=EU), free="ac") is None
        assert self.before(Request("T", name="b"), free="ac") is None

    def test_one_is_not_from_which_a_better_one_keeps_it(self) -> None:
        both = Request("T", 2, where=EU)
        assert self.before(both, Request("T", name="a"), free="ac") is None
        assert self.before(both, Request("T", where=EU + BIG), free="ac") is None

    def test_the_nearest_of_several_is(self) -> None:
        first, second = Request("T", name="a"), Request("T", name="b")
        assert self.before(first, second, free="abc") == ticket(2, second)


class TestWithoutTheStock:
    """What hasn't been read is taken for enough."""

    SUPPLY = Supply(2)

    def test_more_than_there_is_cannot_be_met(self) -> None:
        assert not self.SUPPLY.could_meet(Want(), 3)
        assert self.SUPPLY.could_meet(Want(), 2)

    def test_what_is_wanted_by_what_it_is_may_be_there(self) -> None:
        assert self.SUPPLY.could_meet(Want(where=EU), 3)


def test_a_ticket_that_cannot_be_read_keeps_all_from_others() -> None:
    unreadable = KeyValue("/p/ticket/T/1", json.dumps({"count": 10**9}), 1, 1)
    read = rival(unreadable)
    assert read == Rival(unreadable, Want(), 0)
    competition = compete(Want("a"), [read], Supply(1), is_paced=False)
    assert competition.before == unreadable


def test_one_without_conditions_is_read_by_its_name() -> None:
    older = ticket(1, Request("T", name="a"))
    assert "where" not in json.loads(older.value)
    assert rival(older).want == Want("a")
