"""Requests that what is in a pool can't meet: refused as they arrive, waiting on from then on."""

from __future__ import annotations

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.rules.membership import leave
from leasectl.errors import InvalidRequest, NoLease, NotFound
from leasectl.model import Claimant, Request, Where
from leasectl.system.process import this_process
from tests.contract.test_member_contract import in_pool, names_of, to_cordon, to_move, update
from tests.contract.world import World
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.waits import eventually

ONE, TWO, THREE = (Request("T", count) for count in (1, 2, 3))
EU: Where = (("region", "eu", True),)
SOON = 0.3


class Looking:
    """A request that looks when it is told to, in this process."""

    def __init__(self, world: World, request: Request) -> None:
        claimant = Claimant("looking", "job/1/host/looking", request, this_process())
        self._world = world
        self._waiter = world.engine.waiter(claimant, until=None)
        with world.engine.atomic():
            self._waiter.enqueue()
            assert self._waiter.claim().leases is None

    def look(self) -> Outlook:
        with self._world.engine.atomic():
            return self._waiter.claim()

    def end(self) -> None:
        with self._world.engine.atomic():
            self._waiter.dequeue()
        self._waiter.close()


class TestWhoeverWaitsAlready:
    @pytest.fixture(autouse=True)
    def pools(self, world: World) -> None:
        world.pools.create_pool("T", ["T--00", "T--01", "T--02"])

    def test_for_more_than_is_left_waits_on_and_is_passed(self, world: World) -> None:
        holder = world.client()
        holder.acquire(THREE)
        group, pair = world.client().begin(THREE), world.client().begin(TWO)
        remove_resources(world.members, "T", ["T--02"], force=True)
        holder.free()
        assert names_of(pair.result()) == ["T--00", "T--01"]
        assert not group.done()
        (pool,) = world.pools.pools("T")
        assert [entry.count for entry in pool.queue] == [3]

    def test_is_served_where_it_was_when_there_is_enough_again(self, world: World) -> None:
        holder, other = world.client(), world.client()
        holder.acquire(TWO)
        group = world.client().begin(THREE)
        remove_resources(world.members, "T", ["T--02"], force=True)
        other_end = other.begin(TWO)
        add_resources(world.members, "T", ["T--03"])
        eventually(lambda: not world.pools.pools("T")[0].queue[0].suspended)
        holder.free()
        assert names_of(group.result()) == ["T--03", "T--00", "T--01"]
        assert not other_end.done()

    def test_for_a_name_that_goes_waits_until_it_comes_again(self, world: World) -> None:
        world.client().acquire(Request("T", name="T--00"))
        named = world.client().begin(Request("T", name="T--00"))
        remove_resources(world.members, "T", ["T--00"], force=True)
        assert names_of(world.client().acquire(TWO)) == ["T--01", "T--02"]
        assert not named.done()
        add_resources(world.members, "T", ["T--00"])
        assert names_of(named.result()) == ["T--00"]

    def test_and_has_stopped_keeps_nobody_from_anything(self, world: World) -> None:
        holder, stopped = world.client(), world.client()
        holder.acquire(THREE)
        group = stopped.begin(THREE)
        stopped.stop()
        pair = world.client().begin(TWO)
        remove_resources(world.members, "T", ["T--02"], force=True)
        holder.free()
        assert names_of(pair.result()) == ["T--00", "T--01"]
        stopped.go_on()
        assert not group.done()

    def test_is_told_what_there_is_instead_once_it_looks(self, world: World) -> None:
        world.client().acquire(THREE)
        looking = Looking(world, TWO)
        assert looking.look().impossible is None
        remove_resources(world.members, "T", ["T--01", "T--02"], force=True)
        assert looking.look() == Outlook(
            impossible='pool "T" has 1 resource (not counting cordoned or leaving ones), '
            "so a request for 2 can't be met"
        )
        add_resources(world.members, "T", ["T--03"])
        assert looking.look().impossible is None
        looking.end()

    def test_ends_with_the_pool(self, world: World) -> None:
        world.client().acquire(THREE)
        pending = world.client().begin(THREE)
        remove_resources(world.members, "T", ["T--02"], force=True)
        world.pools.delete_pool("T", force=True)
        with pytest.raises(NotFound, match='no pool "T"'):
            pending.result()

    def test_ends_when_its_time_is_over(self, world: World) -> None:
        world.client().acquire(THREE)
        pending = world.client().begin(THREE, wait=SOON)
        remove_resources(world.members, "T", ["T--02"], force=True)
        world.let_pass(SOON)
        with pytest.raises(NoLease):
            pending.result()

    def test_for_either_type_waits_on_in_both(self, world: World) -> None:
        world.pools.create_pool("U", ["U--00"])
        world.client().acquire(THREE)
        world.client().acquire(Request("U"))
        pending = world.client().begin(Request("U", other_types=("T",)))
        remove_resources(world.members, "U", ["U--00"], force=True)
        remove_resources(world.members, "T", ["T--00", "T--01", "T--02"], force=True)
        assert [len(pool.queue) for pool in world.pools.pools()] == [1, 1]
        add_resources(world.members, "U", ["U--01"])
        assert names_of(pending.result()) == ["U--01"]
        assert [len(pool.queue) for pool in world.pools.pools()] == [0, 0]


class TestWhatTakesNoHolder:
    @pytest.fixture(autouse=True)
    def pools(self, world: World) -> None:
        world.pools.create_pool("T", ["T--00", "T--01", "T--02"])
        world.pools.create_pool("U", ["U--00"])

    def test_does_not_count_for_what_arrives(self, world: World) -> None:
        update(world, to_cordon(), "T--01")
        with pytest.raises(InvalidRequest, match="3 resources, of which 1 is unavailable"):
            world.client().acquire(THREE, wait=None)
        with pytest.raises(InvalidRequest, match=r'"T--01" in pool "T" .* cordoned'):
            world.client().acquire(Request("T", name="T--01"), wait=None)
        assert names_of(world.client().acquire(TWO)) == ["T--00", "T--02"]

    def test_does_not_count_for_what_waits(self, world: World) -> None:
        holder, other = world.client(), world.client()
        holder.acquire(ONE)
        group, single = world.client().begin(THREE), other.begin(ONE)
        update(world, to_cordon(), "T--02")
        assert names_of(single.result()) == ["T--01"]
        holder.free()
        assert not group.done()
        update(world, to_cordon(is_cordoned=False), "T--02")
        other.free()
        assert len(group.result()) == 3

    def test_counts_again_where_it_comes(self, world: World) -> None:
        holder = world.client()
        holder.acquire(Request("U"))
        looking = Looking(world, Request("U"))
        update(world, to_move("T", when_free=True), "U--00")
        assert looking.look().impossible == (
            'pool "U" has 0 resources (not counting cordoned or leaving ones), '
            "so a request for 1 can't be met"
        )
        holder.free()
        assert in_pool(world, "U") == []
        update(world, to_move("U"), "T--00")
        assert names_of(looking.look().leases or ()) == ["T--00"]
        looking.end()

    def test_is_what_leaves_as_well(self, world: World) -> None:
        holder = world.client()
        holder.acquire(Request("U"))
        update(world, lambda member, _: leave(member, "U"), "U--00")
        with pytest.raises(InvalidRequest, match="1 resource, but it is unavailable"):
            world.client().acquire(Request("U"), wait=None)

    def test_by_what_it_is_says_what_there_is(self, world: World) -> None:
        for name, region in (("T--00", "us"), ("T--01", "us"), ("T--02", "asia")):
            update(world, lambda m, _, r=region: m._replace(properties=(("region", r),)), name)  # type: ignore[misc]
        refused = (
            'pool "T" has no resource for --where region=eu; there is: region=asia (1), '
            "region=us (2)"
        )
        with pytest.raises(InvalidRequest) as error:
            world.client().acquire(Request("T", where=EU), wait=None)
        assert str(error.value).startswith(refused)


class TestByWhatItIs:
    @pytest.fixture(autouse=True)
    def pools(self, world: World) -> None:
        world.pools.create_pool("T", ["T--00", "T--01", "T--02"])

    def test_what_is_no_more_is_waited_for(self, world: World) -> None:
        update(world, lambda m, _: m._replace(properties=(("region", "eu"),)), "T--00")
        world.client().acquire(Request("T", name="T--00"))
        waiting = world.client().begin(Request("T", where=EU))
        update(world, lambda m, _: m._replace(properties=()), "T--00")
        assert names_of(world.client().acquire(ONE)) == ["T--01"]
        assert not waiting.done()
        update(world, lambda m, _: m._replace(properties=(("region", "eu"),)), "T--02")
        assert names_of(waiting.result()) == ["T--02"]
