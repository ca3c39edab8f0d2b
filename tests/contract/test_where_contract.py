"""Who may take what, where requests say what has to be so of it, on every engine."""

from __future__ import annotations

import pytest

from leasectl.engines.rules.membership import Member
from leasectl.errors import NoLease
from leasectl.model import Lease, Request, Where
from tests.contract.test_member_contract import names_of, to_cordon, to_move, update
from tests.contract.world import World

EU: Where = (("region", "eu", True),)
US: Where = (("region", "us", True),)
NOT_EU: Where = (("region", "eu", False),)
BIG_EU: Where = (("region", "eu", True), ("size", "big", True))


def is_in(world: World, region: str, *names: str, size: str = "small") -> None:
    properties = (("region", region), ("size", size))
    world.members.update(names, lambda member, _: member._replace(properties=properties))


@pytest.fixture
def pool(world: World) -> World:
    """A pool of two in Europe, one of them big, one in America, and one of which nothing is so."""
    world.pools.create_pool("T", ["eu-1", "eu-2", "other", "us-1"])
    is_in(world, "eu", "eu-1")
    is_in(world, "eu", "eu-2", size="big")
    is_in(world, "us", "us-1")
    return world


def take(world: World, where: Where = (), count: int = 1) -> list[str]:
    return names_of(world.client().acquire(Request("T", count, where=where)))


def take_all(world: World, *names: str) -> None:
    for name in names:
        world.client().acquire(Request("T", name=name))


class TestWhat:
    @pytest.mark.parametrize(
        ("where", "names"),
        [
            (EU, ["eu-1", "eu-2"]),
            (US, ["us-1"]),
            (NOT_EU, ["other", "us-1"]),
            (BIG_EU, ["eu-2"]),
        ],
    )
    def test_is_had_is_what_it_is_to_be(self, pool: World, where: Where, names: list[str]) -> None:
        assert [take(pool, where)[0] for _ in names] == names
        with pytest.raises(NoLease):
            take(pool, where)

    def test_is_had_of_several_is_all_or_none(self, pool: World) -> None:
        take_all(pool, "eu-1")
        with pytest.raises(NoLease):
            take(pool, EU, 2)
        assert take(pool, NOT_EU, 2) == ["other", "us-1"]

    def test_is_cordoned_is_not_had(self, pool: World) -> None:
        update(pool, to_cordon(), "eu-1")
        assert take(pool, EU) == ["eu-2"]


class TestWhoPasses:
    def test_are_those_who_want_another(self, pool: World) -> None:
        take_all(pool, "eu-1", "eu-2")
        waiting = pool.client().begin(Request("T", where=EU))
        assert take(pool, US) == ["us-1"]
        assert take(pool) == ["other"]
        assert not waiting.done()

    def test_are_not_those_who_want_the_same(self, pool: World) -> None:
        holder = pool.client()
        holder.acquire(Request("T", 2, where=EU))
        first = pool.client().begin(Request("T", where=EU))
        second = pool.client().begin(Request("T", where=EU))
        any_of_it = pool.client().begin(Request("T", 3))
        holder.free(["eu-2"])
        assert names_of(first.result()) == ["eu-2"]
        holder.free()
        assert names_of(second.result()) == ["eu-1"]
        assert not any_of_it.done()

    def test_take_nothing_that_a_better_one_could_use(self, pool: World) -> None:
        take_all(pool, "eu-1", "us-1", "other")
        waiting = pool.client().begin(Request("T", 2, where=EU))
        for where in ((), BIG_EU, EU):
            with pytest.raises(NoLease):
                take(pool, where)
        assert not waiting.done()

    def test_is_nobody_where_any_would_do(self, pool: World) -> None:
        take_all(pool, "other", "us-1", "eu-1")
        waiting = pool.client().begin(Request("T", 2))
        for where in (EU, BIG_EU):
            with pytest.raises(NoLease):
                take(pool, where)
        assert not waiting.done()

    def test_are_those_by_name_likewise(self, pool: World) -> None:
        take_all(pool, "eu-1")
        pool.client().begin(Request("T", 2, where=EU))
        with pytest.raises(NoLease):
            take_all(pool, "eu-2")
        take_all(pool, "us-1")


class TestWhoIsWoken:
    def test_is_who_wants_what_is_freed(self, pool: World) -> None:
        holder = pool.client()
        holder.acquire(Request("T", 4))
        eu = pool.client().begin(Request("T", where=EU))
        us = pool.client().begin(Request("T", where=US))
        holder.free(["us-1"])
        assert names_of(us.result()) == ["us-1"]
        assert not eu.done()
        holder.free(["eu-2"])
        assert names_of(eu.result()) == ["eu-2"]

    def test_are_those_that_one_kept_from_it_who_gives_up(self, pool: World) -> None:
        take_all(pool, "eu-1")
        greedy = pool.client()
        greedy.begin(Request("T", 2, where=EU))
        big = pool.client().begin(Request("T", where=BIG_EU))
        assert not big.done()
        pool.withdraw(greedy)
        assert names_of(big.result()) == ["eu-2"]

    def test_are_those_of_other_wishes_as_one_is_served(self, pool: World) -> None:
        holder = pool.client()
        holder.acquire(Request("T", 4))
        several = pool.client().begin(Request("T", 2, where=NOT_EU))
        anybody = pool.client().begin(Request("T"))
        holder.free(["other"])
        assert not anybody.done()
        holder.free(["us-1", "eu-1"])
        assert names_of(several.result()) == ["other", "us-1"]
        assert names_of(anybody.result()) == ["eu-1"]

    def test_is_who_wants_what_a_resource_becomes(self, pool: World) -> None:
        take_all(pool, "eu-1", "eu-2")
        waiting = pool.client().begin(Request("T", where=EU))
        is_in(pool, "eu", "us-1")
        assert names_of(waiting.result()) == ["us-1"]

    def test_is_who_wants_what_comes(self, pool: World) -> None:
        take_all(pool, "us-1")
        pool.pools.create_pool("U", ["more"])
        is_in(pool, "us", "more")
        waiting = pool.client().begin(Request("T", where=US))
        update(pool, to_move("T"), "more")
        assert names_of(waiting.result()) == ["more"]


def test_what_is_held_may_become_something_else(pool: World) -> None:
    client = pool.client()
    (lease,) = client.acquire(Request("T", where=US))
    assert isinstance(lease, Lease)
    is_in(pool, "eu", "us-1")
    assert client.renew() == ("us-1",)
    client.free()
    assert take(pool, EU, 3) == ["eu-1", "eu-2", "us-1"]


def test_by_priority_the_better_one_keeps_what_it_could_use(pool: World) -> None:
    holder = pool.client()
    holder.acquire(Request("T", 4))
    low = pool.client().begin(Request("T", where=EU))
    high = pool.client().begin(Request("T", where=BIG_EU, priority=1))
    holder.free(["eu-2"])
    assert names_of(high.result()) == ["eu-2"]
    assert not low.done()
    holder.free(["eu-1"])
    assert names_of(low.result()) == ["eu-1"]


def test_nothing_is_said_of_a_name_unless_it_is(pool: World) -> None:
    assert pool.members.members(["other"]) == (Member("other", "T"),)
