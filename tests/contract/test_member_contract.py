"""In which pool each name is, and what is so of it there, on every engine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import (
    Cordon,
    Lifetime,
    Member,
    add,
    cordon,
    expect,
    expect_nothing,
    expect_pattern,
    join,
    leave,
    move,
    remove,
    set_default,
)
from leasectl.errors import InvalidRequest, LeaseError, NoLease, NotAllowed, NotFound
from leasectl.model import Claimant, Lease, Request
from leasectl.system.process import identify, this_process
from tests.contract.world import World
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.waits import eventually

TTL = 10.0
GRACE = 30.0


def to_add(pool_type: str) -> Decide:
    return lambda member, pools: add(member, pool_type, pools)


def to_join(pool_type: str, lifetime: Lifetime | None = None) -> Decide:
    return lambda member, pools: join(member, pool_type, pools, lifetime=lifetime)


def to_move(pool_type: str, *, when_free: bool = False) -> Decide:
    return lambda member, pools: move(member, pool_type, pools, when_free=when_free)


def to_leave(pool_type: str) -> Decide:
    return lambda member, _: leave(member, pool_type)


def to_cordon(why: Cordon | None = None, *, is_cordoned: bool = True) -> Decide:
    return lambda member, _: cordon(member, is_cordoned=is_cordoned, why=why)


def to_expect(pool_type: str) -> Decide:
    return lambda member, pools: expect(member, pool_type, pools)


def to_remove(pool_type: str) -> Decide:
    return lambda member, _: remove(member, pool_type, force=False)


def make_pools(world: World, *, pace: float = 0.0) -> None:
    settings = PoolSettings(pace_seconds=pace) if pace else NO_SETTINGS
    world.pools.create_pool("A", ["a-1", "a-2"], settings=settings)
    world.pools.create_pool("B", ["b-1"])


def update(world: World, decide: Decide, *names: str) -> tuple[Member, ...]:
    return world.members.update(names, decide).after


def the(world: World, name: str) -> Member:
    (member,) = world.members.members([name])
    return member


def in_pool(world: World, pool_type: str) -> list[str]:
    (pool,) = world.pools.pools(pool_type)
    return [resource.name for resource in pool.resources]


def names_of(leases: tuple[Lease, ...]) -> list[str]:
    return [lease.name for lease in leases]


class TestAdding:
    def test_puts_a_name_into_a_pool(self, world: World) -> None:
        make_pools(world)
        assert update(world, to_add("B"), "n") == (Member("n", "B"),)
        assert in_pool(world, "B") == ["b-1", "n"]

    def test_where_it_is_changes_nothing(self, world: World) -> None:
        make_pools(world)
        last = world.events.last_number()
        before, after, _ = world.members.update(["a-1"], to_add("A"))
        assert before == after
        assert world.events.last_number() == last

    def test_elsewhere_is_refused_with_the_pool_that_has_it(self, world: World) -> None:
        make_pools(world)
        with pytest.raises(NotAllowed, match='"a-1" is in pool "A"'):
            update(world, to_add("B"), "a-1")
        assert the(world, "a-1") == Member("a-1", "A")

    def test_of_several_of_which_one_is_refused_adds_none(self, world: World) -> None:
        make_pools(world)
        with pytest.raises(NotAllowed):
            update(world, to_add("B"), "n-1", "a-1", "n-2")
        assert in_pool(world, "B") == ["b-1"]

    def test_to_no_pool_is_an_error(self, world: World) -> None:
        make_pools(world)
        with pytest.raises(NotFound, match='no pool "C"'):
            update(world, to_add("C"), "n")
        assert the(world, "n") == Member("n")

    def test_wakes_who_waits_there(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        update(world, to_add("B"), "n")
        assert names_of(waiting.result()) == ["n"]

    def test_of_many_who_add_a_name_to_two_pools_those_to_one_win(self, world: World) -> None:
        make_pools(world)
        names = [f"n-{number}" for number in range(12)]
        results: list[tuple[str, str, str]] = []

        def add_all(pool_type: str) -> None:
            for name in names:
                try:
                    update(world, to_add(pool_type), name)
                    results.append((name, pool_type, ""))
                except NotAllowed as error:
                    results.append((name, pool_type, str(error)))

        threads = [threading.Thread(target=add_all, args=(each,)) for each in "ABABAB"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            winner = the(world, name).pool
            for _, pool_type, error in (each for each in results if each[0] == name):
                assert (not error) == (pool_type == winner)
                assert not error or f'in pool "{winner}"' in error


class TestMoving:
    def test_takes_a_free_one_from_pool_to_pool(self, world: World) -> None:
        make_pools(world)
        update(world, to_move("B"), "a-1", "a-2")
        assert (in_pool(world, "A"), in_pool(world, "B")) == ([], ["a-1", "a-2", "b-1"])

    def test_wakes_who_waits_where_it_comes(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        update(world, to_move("B"), "a-1")
        assert names_of(waiting.result()) == ["a-1"]

    def test_of_a_held_one_is_refused_and_moves_none(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("A", name="a-2"))
        with pytest.raises(NotAllowed, match="--when-free"):
            update(world, to_move("B"), "a-1", "a-2")
        assert in_pool(world, "B") == ["b-1"]

    def test_of_a_held_one_waits_for_its_release_if_it_may(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", name="a-2"))
        world.client().acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        (moving,) = update(world, to_move("B", when_free=True), "a-2")
        assert (moving.pool, moving.moves_to) == ("A", "B")
        assert not waiting.done()
        holder.free()
        assert names_of(waiting.result()) == ["a-2"]
        assert in_pool(world, "A") == ["a-1"]

    def test_of_a_held_one_comes_with_whatever_ends_its_lease(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("A", name="a-1", ttl_seconds=world.ttl_seconds))
        update(world, to_move("B", when_free=True), "a-1")
        world.client().acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        world.let_pass(2 * world.ttl_seconds)
        assert names_of(waiting.result()) == ["a-1"]
        assert in_pool(world, "B") == ["a-1", "b-1"]

    def test_what_is_to_move_takes_no_new_holder_meanwhile(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", count=2))
        waiting = world.client().begin(Request("A"))
        update(world, to_move("B", when_free=True), "a-1")
        holder.free(["a-1"])
        assert not waiting.done()
        holder.free()
        assert names_of(waiting.result()) == ["a-2"]

    def test_keeps_the_fence_growing(self, world: World) -> None:
        make_pools(world)
        client = world.client()
        (before,) = client.acquire(Request("A", name="a-1"))
        client.free()
        update(world, to_move("B"), "a-1")
        (after,) = client.acquire(Request("B", name="a-1"))
        assert after.fence > before.fence

    def test_whoever_looks_sees_it_in_one_pool(self, world: World) -> None:
        make_pools(world)
        is_over = threading.Event()
        seen: set[tuple[str, ...]] = set()

        def look() -> None:
            while not is_over.is_set():
                there = [
                    p.type for p in world.pools.pools() for r in p.resources if r.name == "a-1"
                ]
                seen.add(tuple(there))
                seen.add((the(world, "a-1").pool or "none",))

        watching = threading.Thread(target=look)
        watching.start()
        for number in range(20):
            update(world, to_move("BA"[number % 2]), "a-1")
        is_over.set()
        watching.join()
        assert seen
        assert seen <= {("A",), ("B",)}


class TestCordons:
    def test_keep_new_holders_off(self, world: World) -> None:
        make_pools(world)
        update(world, to_cordon(), "b-1")
        with pytest.raises(InvalidRequest, match="unavailable"):
            world.client().acquire(Request("B"))
        assert names_of(world.client().acquire(Request("A"))) == ["a-1"]

    def test_leave_a_holder_alone_until_it_releases(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        update(world, to_cordon(), "b-1")
        assert holder.renew() == ("b-1",)
        holder.free()
        assert not waiting.done()
        update(world, to_cordon(is_cordoned=False), "b-1")
        assert names_of(waiting.result()) == ["b-1"]

    def test_stay_as_it_moves(self, world: World) -> None:
        make_pools(world)
        update(world, to_cordon(), "a-1")
        update(world, to_move("B"), "a-1")
        assert the(world, "a-1").cordoned
        assert names_of(world.client().acquire(Request("B"))) == ["b-1"]

    def test_keep_who_cordoned_when_and_why(self, world: World) -> None:
        make_pools(world)
        why, other = Cordon("me@host/host", 12.5, 'disk "x" — full'), Cordon("you@host/host", 99.0)
        update(world, to_cordon(why), "a-1")
        assert the(world, "a-1").cordon == why
        update(world, to_cordon(other), "a-1")  # without a reason
        update(world, to_move("B"), "a-1")
        shown = [each.member for each in world.pools.pools("B")[0].resources if each.member]
        assert [each.cordon for each in shown] == [the(world, "a-1").cordon] == [why]
        update(world, to_cordon(other._replace(reason="gone")), "a-1")
        assert the(world, "a-1").cordon == other._replace(reason="gone")
        update(world, to_cordon(is_cordoned=False), "a-1")
        assert (the(world, "a-1").cordoned, the(world, "a-1").cordon) == (False, None)

    def test_of_what_is_in_no_pool_are_an_error(self, world: World) -> None:
        make_pools(world)
        with pytest.raises(NotFound, match="in no pool"):
            update(world, to_cordon(), "n")


class TestJoining:
    def joined(self, world: World, name: str, *, at: str = "B") -> Updated:
        claimant = Claimant("joiner", "job/1/host/joiner", Request(at, name=name), this_process())
        return world.members.update([name], to_join(at), claimant=claimant)

    def test_as_held_comes_past_the_queue_and_the_pace(self, world: World) -> None:
        make_pools(world, pace=60.0)
        world.client().acquire(Request("A", name="a-1"))
        waiting = world.client().begin(Request("A"))
        _, (member,), leases = self.joined(world, "n", at="A")
        assert (member.pool, names_of(leases)) == ("A", ["n"])
        assert not waiting.done()
        with world.engine.atomic():
            assert world.engine.free("joiner") == ("n",)

    def test_as_held_keeps_it_from_all_until_it_is_released(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("B"))
        waiting = world.client().begin(Request("B"))
        (lease,) = self.joined(world, "n").leases
        assert not waiting.done()
        assert the(world, "n").holder == lease.holder_identity
        with world.engine.atomic():
            world.engine.free("joiner")
        assert names_of(waiting.result()) == ["n"]

    def test_as_held_is_refused_while_somebody_holds_it(self, world: World) -> None:
        make_pools(world)
        world.client().acquire(Request("B"))
        with pytest.raises(NotAllowed, match="held by"):
            self.joined(world, "b-1")

    def test_for_a_ttl_ends_with_it(self, world: World) -> None:
        make_pools(world)
        update(world, to_join("B", Lifetime(ttl_seconds=TTL)), "n")
        world.let_pass(TTL * 0.6)
        update(world, to_join("B", Lifetime(ttl_seconds=TTL)), "n")
        world.let_pass(TTL * 0.6)
        assert in_pool(world, "B") == ["b-1", "n"]
        world.let_pass(TTL)
        eventually(lambda: in_pool(world, "B") == ["b-1"])
        assert the(world, "n") == Member("n")

    def test_for_a_ttl_outlives_it_in_the_hands_of_a_holder(self, world: World) -> None:
        make_pools(world)
        update(world, to_join("B", Lifetime(ttl_seconds=TTL)), "n")
        holder = world.client()
        holder.acquire(Request("B", name="n"))
        world.let_pass(2 * TTL)
        eventually(lambda: the(world, "n").leaves)
        assert holder.renew() == ("n",)
        holder.free()
        assert in_pool(world, "B") == ["b-1"]

    def test_for_a_process_ends_with_it(self, world: World) -> None:
        make_pools(world)
        with subprocess.Popen(["sleep", "1000"]) as process:
            lifetime = Lifetime(process=identify(process.pid))
            update(world, to_join("B", lifetime), "n")
            assert in_pool(world, "B") == ["b-1", "n"]
            process.kill()
            process.wait()
        eventually(lambda: in_pool(world, "B") == ["b-1"])

    def test_ends_by_leaving(self, world: World) -> None:
        make_pools(world)
        update(world, to_join("B"), "n")
        (gone,) = update(world, lambda member, _: leave(member, "B"), "n")
        assert gone == Member("n")
        assert in_pool(world, "B") == ["b-1"]


class TestTheDefaultPool:
    @pytest.fixture
    def default(self, world: World) -> Iterator[World]:
        make_pools(world)
        world.members.change_belonging(partial(set_default, pool_type="B", grace_seconds=GRACE))
        yield world

    def test_holds_back_what_comes_there(self, default: World) -> None:
        update(default, to_add("B"), "n")
        default.client().acquire(Request("B"))
        with pytest.raises(NoLease):
            default.client().acquire(Request("B"))

    def test_gives_it_out_when_the_grace_is_over(self, default: World) -> None:
        update(default, to_add("B"), "n")
        default.client().acquire(Request("B"))
        waiting = default.client().begin(Request("B"))
        default.let_pass(GRACE + 1)
        assert names_of(waiting.result()) == ["n"]

    @pytest.mark.parametrize("decide", [to_add("A"), to_join("A"), to_expect("A")])
    def test_gives_it_up_to_whoever_claims_it(self, default: World, decide: Decide) -> None:
        update(default, to_add("B"), "n")
        update(default, decide, "n")
        assert (in_pool(default, "A"), in_pool(default, "B")) == (["a-1", "a-2", "n"], ["b-1"])

    def test_keeps_what_is_held_after_the_grace(self, default: World) -> None:
        update(default, to_add("B"), "n")
        default.let_pass(GRACE + 1)
        default.client().acquire(Request("B", name="n"))
        with pytest.raises(NotAllowed, match='in pool "B"'):
            update(default, to_add("A"), "n")

    def test_is_none_until_it_is_set(self, world: World) -> None:
        make_pools(world)
        assert world.members.belonging().default is None


class TestExpectations:
    def test_of_a_name_keep_it_from_other_pools(self, world: World) -> None:
        make_pools(world)
        update(world, to_expect("A"), "n")
        assert the(world, "n") == Member("n", expected="A")
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            update(world, to_add("B"), "n")
        update(world, to_add("A"), "n")
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            update(world, to_move("B"), "n")

    def test_outlive_the_pool(self, world: World) -> None:
        make_pools(world)
        update(world, to_expect("A"), "n")
        update(world, to_add("A"), "n")
        world.pools.delete_pool("A", force=False)
        assert the(world, "n") == Member("n", expected="A")
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            update(world, to_add("B"), "n")
        update(world, lambda member, _: expect_nothing(member), "n")
        update(world, to_add("B"), "n")

    def test_of_a_pattern_hold_for_names_that_come_later(self, world: World) -> None:
        make_pools(world)
        world.members.change_belonging(partial(expect_pattern, pattern="edge-*", to="A"))
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            update(world, to_join("B"), "edge-7")
        update(world, to_join("A"), "edge-7")
        assert "edge-7" in in_pool(world, "A")

    def test_of_a_held_name_that_came_by_default_move_it_with_its_release(
        self, world: World
    ) -> None:
        make_pools(world)
        world.members.change_belonging(lambda pools: set_default(pools, "B", 0.0))
        update(world, to_add("B"), "n")
        holder = world.client()
        holder.acquire(Request("B", name="n"))
        update(world, to_expect("A"), "n")
        assert (the(world, "n").pool, the(world, "n").moves_to) == ("B", "A")
        holder.free()
        assert the(world, "n") == Member("n", "A", expected="A")

    def test_that_are_refused_change_nothing(self, world: World) -> None:
        make_pools(world)
        with pytest.raises(LeaseError):
            world.members.change_belonging(partial(expect_pattern, pattern="e*", to="C"))
        assert not world.members.belonging().patterns


class TestProperties:
    EU = (("region", "eu"),)

    def test_are_kept_with_the_name(self, world: World) -> None:
        make_pools(world)
        update(world, lambda member, _: member._replace(properties=self.EU), "a-1")
        client = world.client()
        client.acquire(Request("A", name="a-1"))
        client.free()
        update(world, to_move("B"), "a-1")
        assert the(world, "a-1").properties == self.EU

    def test_go_with_it(self, world: World) -> None:
        make_pools(world)
        update(world, lambda member, _: member._replace(properties=self.EU), "a-1")
        update(world, to_remove("A"), "a-1")
        assert the(world, "a-1") == Member("a-1")


class TestEvents:
    def said(self, world: World) -> list[tuple[str, tuple[str, ...], str]]:
        found = [each for each in world.events.read() if each.kind == "pool changed"]
        return [(each.type, each.names, each.reason) for each in found]

    def test_tell_both_pools_of_a_move(self, world: World) -> None:
        make_pools(world)
        update(world, to_move("B"), "a-1", "a-2")
        assert self.said(world) == [
            ("A", ("a-1", "a-2"), "2 resources moved to B, removed"),
            ("B", ("a-1", "a-2"), "2 resources moved here from A, added"),
        ]

    def test_tell_of_a_release_that_moves(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", name="a-1"))
        update(world, to_move("B", when_free=True), "a-1")
        holder.free()
        assert [each[2] for each in self.said(world)] == [
            "1 resource to go to B when free",
            "1 resource moved to B, removed",
            "1 resource moved here from A, added",
        ]

    def test_tell_of_a_move_that_is_called_off(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", name="a-1"))
        update(world, to_move("B", when_free=True), "a-1")
        update(world, to_move("A"), "a-1")
        update(world, to_move("A"), "a-1")
        holder.free()
        assert self.said(world) == [
            ("A", ("a-1",), "1 resource to go to B when free"),
            ("A", ("a-1",), "1 resource no longer to go to B"),
        ]

    def test_tell_of_what_joins_again_before_it_has_left(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", name="a-1"))
        update(world, to_leave("A"), "a-1")
        update(world, to_join("A"), "a-1")
        update(world, to_join("A"), "a-1")
        holder.free()
        assert self.said(world) == [
            ("A", ("a-1",), "1 resource to leave when free"),
            ("A", ("a-1",), "1 resource no longer to leave"),
        ]

    def test_tell_of_a_move_that_becomes_a_leave_and_of_a_leave_that_becomes_a_move(
        self, world: World
    ) -> None:
        make_pools(world)
        world.client().acquire(Request("A", name="a-1"))
        for decide in (to_move("B", when_free=True), to_leave("A"), to_move("B", when_free=True)):
            update(world, decide, "a-1")
        assert [each[2] for each in self.said(world)] == [
            "1 resource to go to B when free",
            "1 resource to leave when free",
            "1 resource to go to B when free",
        ]

    def test_tell_of_the_default_pool_and_what_it_was_before(self, world: World) -> None:
        make_pools(world)
        for pool_type, grace in (("B", GRACE), ("B", GRACE), ("B", 0.0), ("A", 0.0), (None, 0.0)):
            default = partial(set_default, pool_type=pool_type, grace_seconds=grace)
            world.members.change_belonging(default)
        assert self.said(world) == [
            ("B", (), "the default pool, grace 30s; before: none"),
            ("B", (), "the default pool, no grace; before: grace 30s"),
            ("B", (), "no longer the default pool"),
            ("A", (), "the default pool, no grace; before: B"),
            ("A", (), "no longer the default pool"),
        ]

    def test_tell_of_where_names_belong(self, world: World) -> None:
        make_pools(world)
        update(world, to_expect("A"), "a-1", "n")
        update(world, to_expect("A"), "a-1", "n")
        update(world, lambda member, _: expect_nothing(member), "n")
        for to in ("B", "B", None):
            world.members.change_belonging(partial(expect_pattern, pattern="x-*", to=to))
        assert self.said(world) == [
            ("A", ("a-1", "n"), "2 resources expected"),
            ("A", ("n",), "1 resource no longer expected"),
            ("B", (), '"x-*" expected'),
            ("B", (), '"x-*" no longer expected'),
        ]

    def test_tell_of_a_cordon(self, world: World) -> None:
        make_pools(world)
        update(world, to_cordon(), "a-1")
        update(world, to_cordon(Cordon("me@host/host", 1.0, "disk full")), "a-2")
        assert self.said(world) == [
            ("A", ("a-1",), "1 resource cordoned"),
            ("A", ("a-2",), "1 resource cordoned (disk full)"),
        ]


class TestPoolsThatAreMadeGivenMoreAndDeleted:
    def test_have_the_default_one_hold_back_what_it_is_given(self, world: World) -> None:
        make_pools(world)
        world.members.change_belonging(partial(set_default, pool_type="B", grace_seconds=GRACE))
        add_resources(world.members, "B", ["n"])
        assert the(world, "n").by_default
        world.client().acquire(Request("B", name="b-1"))
        with pytest.raises(NoLease):
            world.client().acquire(Request("B"))

    def test_are_the_default_one_until_they_are_deleted(self, world: World) -> None:
        make_pools(world)
        world.members.change_belonging(partial(set_default, pool_type="B", grace_seconds=GRACE))
        world.pools.delete_pool("B", force=False)
        world.pools.create_pool("B", ["n"])
        assert world.members.belonging().default is None
        assert the(world, "n") == Member("n", "B")

    def test_leave_where_it_is_what_was_to_come_to_them(self, world: World) -> None:
        make_pools(world)
        holder = world.client()
        holder.acquire(Request("A", name="a-1"))
        update(world, to_move("B", when_free=True), "a-1")
        world.pools.delete_pool("B", force=False)
        pending = world.client().begin(Request("A", 2))  # which isn't impossible any more
        eventually(lambda: len(world.pools.pools("A")[0].queue) == 1)
        assert the(world, "a-1").moves_to is None
        world.pools.create_pool("B", ["b-2"])  # another one
        holder.free()
        assert len(pending.result()) == 2
        assert (in_pool(world, "A"), in_pool(world, "B")) == (["a-1", "a-2"], ["b-2"])

    def test_get_no_name_that_belongs_elsewhere(self, world: World) -> None:
        make_pools(world)
        update(world, to_expect("A"), "n")
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            add_resources(world.members, "B", ["m", "n"])
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            world.pools.create_pool("C", ["m", "n"])
        assert [pool.type for pool in world.pools.pools()] == ["A", "B"]
        assert in_pool(world, "B") == ["b-1"]
        add_resources(world.members, "A", ["n"])
        assert the(world, "n") == Member("n", "A", expected="A")


@pytest.mark.parametrize("name", ["192.168.1.17:5555", "usb:1-2"])
def test_a_device_name_with_a_colon_goes_through_all_steps(world: World, name: str) -> None:
    world.pools.create_pool("T", [name])
    world.pools.create_pool("U", ["usb.1-2"])
    client = world.client()
    for request in (Request("T"), Request("T", name=name)):
        (lease,) = client.acquire(request)
        assert lease.name == name
        (resource,) = world.pools.pools("T")[0].resources
        assert (resource.name, resource.claim_key) == (name, client.claim_key)
        assert client.free([name]) == (name,)
    world.members.update([name], lambda member, _: cordon(member, is_cordoned=True))
    assert world.members.members([name])[0].cordoned
    remove_resources(world.members, "T", [name])
    assert world.pools.pools("T")[0].resources == ()
