"""How fast a pool grants, on every engine: so many at once, and then one for each pace."""

from __future__ import annotations

import re
import time

import pytest

from leasectl.engines.cluster.objects import WAITER_TTL_SECONDS
from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.errors import NoLease
from leasectl.model import Claimant, Lease, Request
from tests.contract.world import Client, Pending, World
from tests.kit.pacing import too_fast
from tests.kit.waits import eventually

PACE = 10.0
# etcd counts from when the store has ended what told of the last grant: a second and a bit more.
LATE = 2.0
MOMENT = 0.3  # of real time
ONE = Request("T")
A = Request("A")
EITHER = Request("A", other_types=("B",))


def make_pool(
    world: World, capacity: int, *, pace: float = PACE, burst: int = 1, pool_type: str = "T"
) -> None:
    names = [f"{pool_type}--{number:02d}" for number in range(capacity)]
    world.pools.create_pool(pool_type, names, settings=PoolSettings(pace, burst))


def the_pool(world: World) -> Pool:
    (pool,) = world.pools.pools("T")
    return pool


def begin_all(world: World, *requests: Request) -> list[tuple[Client, Pending]]:
    clients = [world.client() for _ in requests]
    return [(client, client.begin(request)) for client, request in zip(clients, requests)]


def until_next(world: World, pending: Pending, *, step: float = PACE / 4) -> Lease:
    """Let time pass in small steps until a request has its lease, and for no longer."""

    def has_come() -> bool:
        is_due = the_pool(world).next_grant_in_seconds <= step
        world.let_pass(step)
        # On a busy machine who could claim would be late by this clock, and so be passed.
        end = time.monotonic() + (MOMENT if is_due else 0.0)
        while not pending.done() and time.monotonic() < end:
            time.sleep(0.005)
        return pending.done()

    eventually(has_come)
    (lease,) = pending.result()
    return lease


def refusal(world: World, request: Request = ONE, *, wait: float = 0) -> str:
    with pytest.raises(NoLease) as refused:
        world.client().acquire(request, wait=wait)
    return str(refused.value)


class TestTheRule:
    def test_the_second_waits_for_the_time_although_there_is_enough(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        ((_, pending),) = begin_all(world, ONE)
        world.let_pass(PACE * 0.9)
        assert the_pool(world).held == 1
        assert not pending.done()
        world.let_pass(PACE * 0.1 + LATE)
        assert len(pending.result()) == 1

    @pytest.mark.parametrize("burst", [1, 3])
    def test_over_no_time_are_there_more_grants_than_it_allows(
        self, world: World, burst: int
    ) -> None:
        make_pool(world, 9, burst=burst)
        waiting = begin_all(world, *[ONE] * 6)
        times = []
        for _, pending in waiting:
            times.append(until_next(world, pending).acquire_time)
        assert times == sorted(times)
        assert too_fast(times, pace=PACE, burst=burst) == []
        assert times[-1] - times[0] <= (6 - burst) * (PACE + LATE) + PACE

    def test_a_burst_comes_at_once_and_comes_back_with_time(self, world: World) -> None:
        make_pool(world, 9, burst=3)
        for _ in range(3):
            world.client().acquire(ONE)
        assert "next grant in" in refusal(world)
        world.let_pass(2 * (PACE + LATE))
        for _ in range(2):
            world.client().acquire(ONE)
        refusal(world)
        world.let_pass(50 * PACE)
        for _ in range(3):
            world.client().acquire(ONE)
        refusal(world)

    def test_an_acquisition_counts_once_whatever_its_count(self, world: World) -> None:
        make_pool(world, 6)
        assert len(world.client().acquire(Request("T", count=3))) == 3
        refusal(world)
        world.let_pass(PACE + LATE)
        assert len(world.client().acquire(Request("T", count=3))) == 3

    def test_one_by_name_counts_as_any_other(self, world: World) -> None:
        make_pool(world, 3)
        named = Request("T", name="T--01")
        world.client().acquire(named)
        refusal(world)
        world.let_pass(PACE + LATE)
        world.client().acquire(ONE)
        refusal(world, Request("T", name="T--02"))

    def test_a_release_gives_no_time_back(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE)
        client.free()
        refusal(world)

    def test_neither_does_the_end_of_a_ttl(self, world: World) -> None:
        make_pool(world, 1, pace=4 * world.ttl_seconds)
        world.client().acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        refusal(world)

    def test_who_got_nothing_has_used_none(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        world.let_pass(PACE + LATE)
        refusal(world)
        holder.free()
        assert len(world.client().acquire(ONE)) == 1

    def test_pools_have_their_own(self, world: World) -> None:
        make_pool(world, 2)
        make_pool(world, 2, pool_type="U")
        world.client().acquire(ONE)
        assert len(world.client().acquire(Request("U"))) == 1


class TestTheQueue:
    def test_who_waits_for_the_time_keeps_those_behind_back(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        waiting = begin_all(world, ONE, ONE)
        world.let_pass(PACE + LATE)
        assert len(waiting[0][1].result()) == 1
        assert not waiting[1][1].done()
        assert [each.claim_key for each in the_pool(world).queue] == [waiting[1][0].claim_key]

    def test_a_newcomer_doesnt_get_what_the_head_waits_for(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        ((_, head),) = begin_all(world, ONE)
        refusal(world)
        world.let_pass(PACE + LATE)
        assert len(head.result()) == 1
        refusal(world)

    def test_a_better_one_goes_before_the_head_that_waits_for_the_time(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        (_, head), (_, better) = begin_all(world, ONE, ONE._replace(priority=1))
        world.let_pass(PACE + LATE)
        assert len(better.result()) == 1
        assert not head.done()
        world.let_pass(PACE + LATE)
        assert len(head.result()) == 1

    @pytest.mark.parametrize("behind", [ONE, Request("T", name="T--02")])
    def test_the_time_that_has_come_is_that_of_the_better_also_between_names(
        self, world: World, behind: Request
    ) -> None:
        make_pool(world, 3)
        world.client().acquire(Request("T", name="T--00"))
        (_, first), (_, second) = begin_all(world, Request("T", name="T--01"), behind)
        world.let_pass(PACE + LATE)
        assert len(first.result()) == 1
        assert not second.done()
        world.let_pass(PACE + LATE)
        assert len(second.result()) == 1

    def test_the_time_is_not_kept_for_one_whose_resource_is_held(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(Request("T", name="T--00"))
        (_, first), (_, second) = begin_all(world, Request("T", name="T--00"), ONE)
        world.let_pass(PACE + LATE)
        assert len(second.result()) == 1
        assert not first.done()

    def test_a_group_waits_for_enough_and_for_the_time(self, world: World) -> None:
        make_pool(world, 3)
        holders = [world.client(), world.client()]
        for holder in holders:
            holder.acquire(ONE)
            world.let_pass(PACE + LATE)
        (_, group), (_, behind) = begin_all(world, Request("T", count=3), ONE)
        holders[0].free()
        world.let_pass(5 * PACE)
        assert not group.done()
        holders[1].free()
        assert len(group.result()) == 3
        assert not behind.done()

    def test_a_grant_to_either_of_two_pays_in_the_pool_it_came_from(self, world: World) -> None:
        make_pool(world, 2, pool_type="A")
        make_pool(world, 2, pool_type="B")
        (lease,) = world.client().acquire(EITHER)
        assert lease.name == "A--00"
        (lease,) = world.client().acquire(EITHER)
        assert lease.name == "B--00"
        assert "next grant in" in refusal(world, EITHER)
        ((_, pending),) = begin_all(world, EITHER)
        world.let_pass(PACE + LATE)
        assert len(pending.result()) == 1


class TestTheDeadAndTheStopped:
    def test_a_pace_that_was_used_stays_used_when_its_holder_dies(self, world: World) -> None:
        make_pool(world, 3)
        dead = world.client()
        dead.acquire(ONE)
        dead.kill()
        refusal(world)

    def test_one_that_dies_while_it_waits_for_the_time_delays_nobody(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        (dead, _), (_, pending) = begin_all(world, ONE, ONE)
        world.let_pass(PACE / 2)
        dead.kill()
        eventually(lambda: len(the_pool(world).queue) == 1)
        world.let_pass(PACE / 2 + LATE)
        assert len(pending.result()) == 1

    def test_nor_does_one_that_gives_up(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        (leaver, _), (_, pending) = begin_all(world, ONE, ONE)
        world.let_pass(PACE / 2)
        world.withdraw(leaver)
        eventually(lambda: len(the_pool(world).queue) == 1)
        world.let_pass(PACE / 2 + LATE)
        assert len(pending.result()) == 1

    def test_nobody_is_suspended_for_waiting_for_the_time(self, world: World) -> None:
        if not world.keeps_stopped:
            pytest.skip("who is stopped there goes with its ttl, whatever it waits for")
        make_pool(world, 3, pace=10 * SUSPENDED_AFTER_SECONDS)
        world.client().acquire(ONE)
        (stopped, _), (_, behind) = begin_all(world, ONE, ONE)
        stopped.stop()
        for _ in range(9):
            world.let_pass(SUSPENDED_AFTER_SECONDS)
            assert not any(entry.suspended for entry in the_pool(world).queue)
        assert not behind.done()
        stopped.go_on()

    def test_one_that_does_not_come_when_the_time_has_is_passed(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        (stopped, _), (_, behind) = begin_all(world, ONE, ONE)
        stopped.stop()
        long = SUSPENDED_AFTER_SECONDS if world.keeps_stopped else WAITER_TTL_SECONDS
        world.let_pass(PACE + LATE + long)
        assert until_next(world, behind)


class TestWhatIsTold:
    def test_not_waiting_says_when(self, world: World) -> None:
        make_pool(world, 3, pace=14)
        world.client().acquire(ONE)
        said = refusal(world)
        assert "1 of 3 held, nobody else waiting" in said
        found = re.search(r"next grant in (\d+)s", said)
        assert found is not None, said
        assert 12 <= int(found[1]) <= 16

    def test_so_does_who_has_waited_for_too_short(self, world: World) -> None:
        make_pool(world, 3, pace=60)
        world.client().acquire(ONE)
        client = world.client()
        pending = client.begin(ONE, wait=20)
        world.let_pass(21)
        with pytest.raises(NoLease, match=r"within 2\ds: 1 of 3 held.*; next grant in \d\ds"):
            pending.result()

    def test_who_waits_for_long_enough_gets_it(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        pending = world.client().begin(ONE, wait=3 * PACE)
        world.let_pass(PACE + LATE)
        assert len(pending.result()) == 1

    def test_a_pool_without_says_nothing_of_it(self, world: World) -> None:
        make_pool(world, 1, pace=0)
        world.client().acquire(ONE)
        assert "next grant" not in refusal(world)
        assert the_pool(world).next_grant_in_seconds == 0

    def test_pools_show_in_what_time_the_next_is(self, world: World) -> None:
        make_pool(world, 3)
        assert the_pool(world).next_grant_in_seconds == 0
        world.client().acquire(ONE)
        assert PACE - 1 <= the_pool(world).next_grant_in_seconds <= PACE + LATE
        world.let_pass(PACE + LATE)
        assert the_pool(world).next_grant_in_seconds == 0

    def test_a_waiter_can_tell_when_the_next_is(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        waiter = world.engine.waiter(Claimant("w", "w", ONE), until=None)
        with world.engine.atomic():
            waiter.enqueue()
        due = waiter.standing().next_grant_at
        assert due is not None
        with world.engine.atomic():
            waiter.dequeue()
        waiter.close()


class TestSettings:
    def test_a_new_pace_counts_what_has_been_granted(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        world.pools.change_settings("T", PoolSettings(pace_seconds=3 * PACE))
        ((_, pending),) = begin_all(world, ONE)
        world.let_pass(PACE * 0.9)
        assert not pending.done()
        world.let_pass(2.1 * PACE + LATE)
        assert len(pending.result()) == 1

    def test_a_faster_one_applies_to_who_waits(self, world: World) -> None:
        make_pool(world, 3, pace=100 * PACE)
        world.client().acquire(ONE)
        ((_, pending),) = begin_all(world, ONE)
        world.pools.change_settings("T", PoolSettings(pace_seconds=PACE))
        world.let_pass(PACE + LATE)
        assert len(pending.result()) == 1

    def test_without_a_pace_who_waits_goes_on_at_once(self, world: World) -> None:
        make_pool(world, 3, pace=100 * PACE)
        world.client().acquire(ONE)
        waiting = begin_all(world, ONE, ONE)
        world.pools.change_settings("T", NO_SETTINGS)
        for _, pending in waiting:
            assert len(pending.result()) == 1

    def test_a_larger_burst_applies_to_who_waits(self, world: World) -> None:
        make_pool(world, 5, pace=100 * PACE)
        world.client().acquire(ONE)
        ((_, pending),) = begin_all(world, ONE)
        world.pools.change_settings("T", PoolSettings(pace_seconds=100 * PACE, burst=2))
        assert len(pending.result()) == 1
        refusal(world)

    def test_a_pool_made_anew_owes_nothing(self, world: World) -> None:
        make_pool(world, 1, pace=100 * PACE)
        client = world.client()
        client.acquire(ONE)
        client.free()
        world.pools.delete_pool("T", force=False)
        make_pool(world, 1, pace=100 * PACE)
        assert len(world.client().acquire(ONE)) == 1


class TestWaking:
    def test_only_the_head_looks_at_the_time_and_once(self, world: World) -> None:
        make_pool(world, 3, pace=1000 * PACE)
        world.client().acquire(ONE)
        (head, _), *behind = begin_all(world, ONE, ONE, ONE)
        eventually(lambda: head.timed_waits() >= 1)
        assert head.timed_waits() <= 2
        assert all(client.timed_waits() == 0 for client, _ in behind)
