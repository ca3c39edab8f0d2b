"""What holds of every pool, whatever engine keeps it."""

from __future__ import annotations

import itertools
import random

import pytest

from leasectl.engines.cluster.objects import WAITER_TTL_SECONDS
from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.facts import Pool, PoolSettings
from leasectl.errors import Cancelled, InvalidRequest, LeaseError, NoLease, NotAllowed, NotFound
from leasectl.model import Claimant, Lease, Request
from leasectl.pools.changes import PoolChange, carry_out, plan
from leasectl.pools.definitions import CountedPool, Definition, NamedPool
from tests.contract.world import Client, Hold, Pending, World, are_numbered, own_pools
from tests.kit.pacing import standing_in
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.waits import eventually

ONE = Request("T")
TWO = Request("T", count=2)
THREE = Request("T", count=3)
FIRST = Request("T", name="T--00")
THE_OTHER = Request("T", name="T--01")


def make_pool(world: World, capacity: int, pool_type: str = "T") -> None:
    names = [f"{pool_type}--{number:02d}" for number in range(capacity)]
    world.pools.create_pool(pool_type, names)


def the_pool(world: World) -> Pool:
    (pool,) = world.pools.pools("T")
    return pool


def oldest_holder(world: World) -> str:
    leases = [each.lease for each in the_pool(world).resources if each.lease]
    return min(leases, key=lambda lease: lease.grant).holder_identity


def names_of(leases: tuple[Lease, ...]) -> list[str]:
    return [lease.name for lease in leases]


def no_suspended(world: World) -> bool:
    return not any(entry.suspended for entry in the_pool(world).queue)


def names_held(world: World) -> list[str]:
    return [resource.name for resource in the_pool(world).resources if resource.lease]


def free_with_a_stopped_first(world: World) -> tuple[Client, Pending]:
    """A pool of one that has just come free: who was first is stopped, and another waits behind."""
    make_pool(world, 1)
    holder, stopped = world.client(), world.client()
    holder.acquire(ONE)
    stopped.begin(ONE)
    pending = world.client().begin(ONE)
    stopped.stop()
    holder.free()
    return stopped, pending


def let_all_pass_the_stopped(world: World) -> None:
    """Have so much time go by that nobody waits any longer for one who doesn't come."""
    world.let_pass(SUSPENDED_AFTER_SECONDS + 1 if world.keeps_stopped else WAITER_TTL_SECONDS + 1)


def run_rounds(world: World, requests: list[Request], rounds: int) -> list[Hold]:
    """Let clients acquire and free at the same time; returns who held what when."""
    endings = [world.client().begin_rounds(request, rounds) for request in requests]
    return [hold for ending in endings for hold in ending()]


def assert_exclusive(holds: list[Hold]) -> None:
    by_name = sorted(holds, key=lambda hold: (hold.lease.name, hold.since))
    for before, after in zip(by_name, by_name[1:]):
        if before.lease.name == after.lease.name:
            assert before.until <= after.since, (before, after)


class TestExclusion:
    def test_a_held_resource_is_not_granted_to_another(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        with pytest.raises(NoLease):
            world.client().acquire(ONE)

    def test_one_holder_may_hold_while_another_holds_another(self, world: World) -> None:
        make_pool(world, 2)
        held = world.client().acquire(ONE) + world.client().acquire(ONE)
        assert sorted(names_of(held)) == ["T--00", "T--01"]

    def test_pools_do_not_wait_for_each_other(self, world: World) -> None:
        make_pool(world, 1)
        make_pool(world, 1, "U")
        world.client().acquire(ONE)
        world.client().begin(ONE)
        assert names_of(world.client().acquire(Request("U"))) == ["U--00"]

    def test_at_no_instant_do_two_hold_one_resource(self, world: World) -> None:
        make_pool(world, 2)
        holds = run_rounds(world, [ONE] * 5, 8)
        assert len(holds) == 40
        assert_exclusive(holds)

    def test_the_checker_of_exclusion_would_notice(self, world: World) -> None:
        make_pool(world, 1)
        (lease,) = world.client().acquire(ONE)
        with pytest.raises(AssertionError):
            assert_exclusive([Hold(lease, 1.0, 3.0), Hold(lease, 2.0, 4.0)])


class TestAllOrNothing:
    def test_a_group_gets_all_that_it_asks_for(self, world: World) -> None:
        make_pool(world, 3)
        leases = world.client().acquire(THREE)
        assert sorted(names_of(leases)) == ["T--00", "T--01", "T--02"]

    @own_pools
    def test_a_group_is_one_grant_in_the_order_of_names(self, world: World) -> None:
        make_pool(world, 3)
        leases = world.client().acquire(THREE)
        assert names_of(leases) == ["T--00", "T--01", "T--02"]
        assert len({lease.grant for lease in leases}) == 1

    @own_pools
    def test_a_group_that_can_not_have_all_holds_nothing_while_it_waits(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(ONE)
        world.client().begin(THREE)
        assert names_held(world) == ["T--00"]

    @own_pools
    def test_a_group_gets_all_at_once_when_the_last_one_comes_free(self, world: World) -> None:
        make_pool(world, 3)
        first, second, group = world.client(), world.client(), world.client()
        first.acquire(ONE)
        second.acquire(ONE)
        pending = group.begin(THREE)
        first.free()
        assert names_held(world) == ["T--01"]
        assert not pending.done()
        second.free()
        assert len(pending.result()) == 3

    @own_pools
    def test_groups_do_not_deadlock_on_what_each_holds_a_part_of(self, world: World) -> None:
        make_pool(world, 4)
        holds = run_rounds(world, [THREE, THREE, TWO, TWO, ONE], 6)
        assert len(holds) == 6 * (3 + 3 + 2 + 2 + 1)
        assert_exclusive(holds)

    @own_pools
    def test_more_than_the_pool_has_is_refused_at_once(self, world: World) -> None:
        make_pool(world, 2)
        with pytest.raises(InvalidRequest, match=r"2 resources.*a request for 3"):
            world.client().acquire(THREE, wait=None)
        assert the_pool(world).queue == ()


class TestFirstComeFirstServed:
    def test_waiters_are_served_in_the_order_they_came(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        waiters = [world.client() for _ in range(4)]
        pending = [waiter.begin(ONE) for waiter in waiters]
        for position, before in enumerate([holder, *waiters[:-1]]):
            before.free()
            pending[position].result()
            assert not any(later.done() for later in pending[position + 1 :])

    @own_pools
    def test_a_small_request_does_not_overtake_a_large_one(self, world: World) -> None:
        make_pool(world, 2)
        holder, large, small = world.client(), world.client(), world.client()
        holder.acquire(ONE)
        waiting_large = large.begin(TWO)
        with pytest.raises(NoLease):
            small.acquire(ONE)
        waiting_small = small.begin(ONE)
        holder.free()
        assert len(waiting_large.result()) == 2
        assert not waiting_small.done()

    @own_pools
    def test_grants_are_numbered_in_the_order_of_tickets(self, world: World) -> None:
        make_pool(world, 2)
        holds = run_rounds(world, [ONE] * 5, 6)
        by_grant = sorted(holds, key=lambda hold: hold.lease.grant)
        assert len(by_grant) == 30
        assert are_numbered(world, [hold.lease.grant for hold in by_grant])
        tickets = [hold.lease.ticket for hold in by_grant]
        assert tickets == sorted(set(tickets))

    @own_pools
    def test_grants_are_numbered_without_gaps_whatever_was_given_up(self, world: World) -> None:
        make_pool(world, 1)
        client, other = world.client(), world.client()
        (first,) = client.acquire(ONE)
        with pytest.raises(NoLease):
            other.acquire(ONE)
        client.free()
        (second,) = other.acquire(ONE)
        assert are_numbered(world, [first.grant, second.grant])
        assert first.ticket < second.ticket

    @own_pools
    def test_the_least_recently_acquired_comes_first(self, world: World) -> None:
        make_pool(world, 3)
        order = []
        for _ in range(7):
            client = world.client()
            order += names_of(client.acquire(ONE))
            client.free()
        assert order == ["T--00", "T--01", "T--02"] * 2 + ["T--00"]

    @own_pools
    def test_the_order_of_acquiring_counts_not_that_of_giving_back(self, world: World) -> None:
        make_pool(world, 2)
        first, second = world.client(), world.client()
        first.acquire(ONE)
        second.acquire(ONE)
        second.free()
        first.free()
        assert names_of(world.client().acquire(ONE)) == ["T--00"]

    @own_pools
    def test_the_queue_shows_who_waits_for_how_many_since_when(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(ONE)
        group, single = world.client(), world.client()
        group.begin(TWO)
        world.let_pass(5)
        single.begin(ONE)
        queue = the_pool(world).queue
        assert [(entry.claim_key, entry.count) for entry in queue] == [
            (group.claim_key, 2),
            (single.claim_key, 1),
        ]
        assert queue[1].since - queue[0].since >= 5
        assert queue[0].holder_identity.endswith(group.claim_key)

    @own_pools
    def test_the_queue_shows_which_process_waits_for_which_resource_with_what_labels(
        self, world: World
    ) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        anyone, particular = world.client(), world.client()
        anyone.begin(ONE)
        labels = (("team", "x=y"), ("note", "two\u00e9 words"))
        particular.begin(Request("T", name="T--00", labels=labels))
        first, second = the_pool(world).queue
        assert (first.name, first.labels) == (None, ())
        assert (second.name, second.labels) == ("T--00", labels)
        assert first.pid
        assert second.pid


class TestTheDead:
    def test_a_dead_waiter_at_the_head_does_not_block_the_queue(self, world: World) -> None:
        make_pool(world, 1)
        holder, dead, alive = world.client(), world.client(), world.client()
        holder.acquire(ONE)
        dead.begin(ONE)
        pending = alive.begin(ONE)
        dead.kill()
        holder.free()
        assert names_of(pending.result()) == ["T--00"]

    @own_pools
    def test_a_waiter_that_dies_after_the_release_does_not_block_the_queue(
        self, world: World
    ) -> None:
        make_pool(world, 2)
        holder, dead, alive = world.client(), world.client(), world.client()
        holder.acquire(ONE)
        dead.begin(TWO)
        pending = alive.begin(ONE)
        assert not pending.done()
        dead.kill()
        assert names_of(pending.result()) == ["T--01"]

    def test_dead_ones_in_the_middle_do_not_block_the_queue(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        waiters = [world.client() for _ in range(5)]
        pending = [waiter.begin(ONE) for waiter in waiters]
        for waiter in waiters[1:4]:
            waiter.kill()
        holder.free()
        pending[0].result()
        waiters[0].free()
        pending[4].result()

    @own_pools
    def test_a_death_in_the_middle_lets_nobody_overtake(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        first, dead, last = world.client(), world.client(), world.client()
        waiting_first = first.begin(ONE)
        dead.begin(ONE)
        waiting_last = last.begin(ONE)
        dead.kill()
        eventually(lambda: len(the_pool(world).queue) == 2)
        holder.free()
        waiting_first.result()
        assert not waiting_last.done()

    @own_pools
    def test_the_dead_do_not_show_in_the_queue(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        dead = world.client()
        dead.begin(ONE)
        dead.kill()
        assert the_pool(world).queue == ()

    def test_what_a_dead_holder_held_is_free_after_its_ttl(self, world: World) -> None:
        make_pool(world, 1)
        dead, waiter = world.client(), world.client()
        dead.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        pending = waiter.begin(ONE)
        dead.kill()
        world.let_pass(world.ttl_seconds + 1)
        assert names_of(pending.result()) == ["T--00"]


@own_pools
class TestFences:
    def test_fences_of_a_resource_only_grow(self, world: World) -> None:
        make_pool(world, 1)
        holds = run_rounds(world, [ONE] * 4, 6)
        by_time = sorted(holds, key=lambda hold: hold.since)
        fences = [hold.lease.fence for hold in by_time]
        assert fences == sorted(set(fences))

    def test_no_two_leases_of_a_group_share_a_fence(self, world: World) -> None:
        make_pool(world, 3)
        assert len({lease.fence for lease in world.client().acquire(THREE)}) == 3

    def test_no_fence_comes_again_after_the_pool_was_made_anew(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        (before,) = client.acquire(ONE)
        client.free()
        world.pools.delete_pool("T", force=False)
        make_pool(world, 1)
        (after,) = client.acquire(ONE)
        assert after.fence > before.fence

    def test_no_fence_comes_again_after_the_resource_was_made_anew(self, world: World) -> None:
        make_pool(world, 2)
        client = world.client()
        (before,) = client.acquire(Request("T", name="T--00"))
        client.free()
        remove_resources(world.members, "T", ["T--00"])
        add_resources(world.members, "T", ["T--00"])
        (after,) = client.acquire(Request("T", name="T--00"))
        assert after.fence > before.fence

    def test_transitions_count_changes_of_the_holder_only(self, world: World) -> None:
        make_pool(world, 1)
        one, other = world.client(), world.client()
        counted = []
        for client in (one, one, other, one):
            counted.append(client.acquire(ONE)[0].lease_transitions)
            client.free()
        assert counted == [0, 0, 1, 2]


class TestNames:
    def test_a_name_means_that_very_resource(self, world: World) -> None:
        make_pool(world, 3)
        assert names_of(world.client().acquire(Request("T", name="T--02"))) == ["T--02"]

    def test_a_named_resource_that_is_held_is_waited_for(self, world: World) -> None:
        make_pool(world, 2)
        holder, waiter = world.client(), world.client()
        holder.acquire(Request("T", name="T--00"))
        pending = waiter.begin(Request("T", name="T--00"))
        assert not pending.done()
        holder.free()
        assert names_of(pending.result()) == ["T--00"]

    def test_another_resource_that_comes_free_is_not_taken_instead(self, world: World) -> None:
        make_pool(world, 2)
        wanted, other, waiter = world.client(), world.client(), world.client()
        wanted.acquire(Request("T", name="T--00"))
        other.acquire(Request("T", name="T--01"))
        pending = waiter.begin(Request("T", name="T--00"))
        other.free()
        wanted.free()
        assert names_of(pending.result()) == ["T--00"]

    def test_an_unknown_name_is_refused_at_once(self, world: World) -> None:
        make_pool(world, 1)
        make_pool(world, 1, "U")
        for name in ("T--99", "U--00"):
            with pytest.raises(NotFound, match=name):
                world.client().acquire(Request("T", name=name), wait=None)

    @own_pools
    def test_who_was_refused_leaves_no_ticket(self, world: World) -> None:
        make_pool(world, 1)
        with pytest.raises(NotFound):
            world.client().acquire(Request("T", name="T--99"), wait=None)
        assert the_pool(world).queue == ()

    @own_pools
    def test_an_unknown_type_is_refused_with_what_was_probably_meant(self, world: World) -> None:
        make_pool(world, 1, "azure--install")
        with pytest.raises(NotFound, match='did you mean "azure--install"'):
            world.client().acquire(Request("azure--instal"), wait=None)

    @own_pools
    def test_an_unknown_type_is_refused_where_there_is_no_pool_at_all(self, world: World) -> None:
        with pytest.raises(NotFound, match="pool create"):
            world.client().acquire(ONE)


class TestPassing:
    """What a ticket keeps from those behind it: what it could use, and nothing else."""

    @own_pools
    def test_who_does_not_compete_for_a_name_passes_who_waits_for_it(self, world: World) -> None:
        make_pool(world, 3)
        holder, named, other = world.client(), world.client(), world.client()
        holder.acquire(FIRST)
        waiting = named.begin(FIRST)
        assert names_of(other.acquire(ONE)) == ["T--01"]
        assert names_of(world.client().acquire(Request("T", name="T--02"))) == ["T--02"]
        assert not waiting.done()
        holder.free()
        assert names_of(waiting.result()) == ["T--00"]

    @own_pools
    def test_what_another_waits_for_by_name_is_left_to_it(self, world: World) -> None:
        make_pool(world, 2)
        holders = [world.client() for _ in range(2)]
        for holder in holders:
            holder.acquire(ONE)
        stopped, other = world.client(), world.client()
        named = stopped.begin(FIRST)
        stopped.stop()
        waiting = other.begin(ONE)
        holders[0].free()
        with pytest.raises(NoLease):
            world.client().acquire(ONE)
        assert not waiting.done()
        holders[1].free()
        assert names_of(waiting.result()) == ["T--01"]
        stopped.go_on()
        assert names_of(named.result()) == ["T--00"]

    @own_pools
    def test_who_waits_for_the_same_name_does_not_pass(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(FIRST)
        pending = [world.client().begin(FIRST) for _ in range(2)]
        holder.free()
        pending[0].result()
        assert not pending[1].done()

    @own_pools
    def test_nobody_passes_who_waits_for_more_than_there_is(self, world: World) -> None:
        make_pool(world, 3)
        holder = world.client()
        holder.acquire(TWO)
        group = world.client().begin(TWO)
        for request in (ONE, Request("T", name="T--02")):
            with pytest.raises(NoLease):
                world.client().acquire(request)
        holder.free()
        assert len(group.result()) == 2

    @own_pools
    def test_several_that_wait_for_names_are_served_as_each_comes_free(self, world: World) -> None:
        make_pool(world, 4)
        names = ["T--02", "T--00", "T--01"]
        holders = {name: world.client() for name in names}
        for name, holder in holders.items():
            holder.acquire(Request("T", name=name))
        pending = {name: world.client().begin(Request("T", name=name)) for name in names}
        any_two = world.client().begin(TWO)
        for name in ("T--01", "T--02"):
            holders[name].free()
            assert names_of(pending[name].result()) == [name]
        assert not any_two.done()

    @own_pools
    def test_who_was_behind_one_for_a_name_that_gives_up_gets_that(self, world: World) -> None:
        make_pool(world, 2)
        holder, named = world.client(), world.client()
        holder.acquire(THE_OTHER)
        waiting = named.begin(FIRST, wait=60)
        waiting.result()
        stopped = world.client()
        behind_it = stopped.begin(FIRST, wait=60)
        pending = world.client().begin(ONE)
        stopped.stop()
        named.free()
        assert not pending.done()
        world.withdraw(stopped)
        assert names_of(pending.result()) == ["T--00"]
        stopped.go_on()
        with pytest.raises(Cancelled):
            behind_it.result()

    def test_a_dead_one_that_waited_for_a_name_keeps_nobody_from_it(self, world: World) -> None:
        make_pool(world, 1)
        holder, dead = world.client(), world.client()
        holder.acquire(ONE)
        dead.begin(FIRST)
        pending = world.client().begin(ONE)
        dead.kill()
        holder.free()
        assert len(pending.result()) == 1

    @own_pools
    def test_the_position_is_told_among_those_that_compete(self, world: World) -> None:
        make_pool(world, 3)
        world.client().acquire(THREE)
        for request in (FIRST, THE_OTHER, FIRST):
            world.client().begin(request)
        positions = []
        for number, request in enumerate((FIRST, THE_OTHER, Request("T", name="T--02"), ONE)):
            claimant = Claimant(f"w{number}", "w", request)
            waiter = world.engine.waiter(claimant, until=None)
            with world.engine.atomic():
                waiter.enqueue()
            positions.append(waiter.standing().position)
            with world.engine.atomic():
                waiter.dequeue()
            waiter.close()
        assert positions == [3, 2, 1, 4]


class TestTheStopped:
    """Who lives and doesn't run, as after SIGSTOP."""

    def test_a_stopped_waiter_does_not_block_the_queue(self, world: World) -> None:
        _, pending = free_with_a_stopped_first(world)
        world.let_pass(9)
        assert not pending.done()
        let_all_pass_the_stopped(world)
        assert names_of(pending.result()) == ["T--00"]

    def test_neither_do_several_in_a_row(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(TWO)
        stopped = [world.client() for _ in range(4)]
        for client, request in zip(stopped, (ONE, TWO, FIRST, ONE)):
            client.begin(request)
        pending = world.client().begin(TWO)
        for client in stopped:
            client.stop()
        holder.free()
        assert not pending.done()

        def passed_all() -> bool:
            let_all_pass_the_stopped(world)
            return pending.done()

        eventually(passed_all)
        assert len(pending.result()) == 2

    @own_pools
    def test_it_goes_on_when_it_is_continued(self, world: World) -> None:
        make_pool(world, 1)
        holder, stopped, other = world.client(), world.client(), world.client()
        holder.acquire(ONE)
        waiting, passing = stopped.begin(ONE), other.begin(ONE)
        behind = world.client().begin(ONE)
        stopped.stop()
        holder.free()
        let_all_pass_the_stopped(world)
        passing.result()
        stopped.go_on()
        first, second = (waiting, behind) if world.keeps_stopped else (behind, waiting)
        eventually(lambda: len(the_pool(world).queue) == 2 and no_suspended(world))
        other.free()
        first.result()
        assert not second.done()

    @own_pools
    def test_it_is_shown_as_suspended_until_then(self, world: World) -> None:
        if not world.keeps_stopped:
            pytest.skip("nothing is left to be shown of it")
        stopped, pending = free_with_a_stopped_first(world)
        let_all_pass_the_stopped(world)
        pending.result()
        (entry,) = the_pool(world).queue
        assert (entry.claim_key, entry.suspended) == (stopped.claim_key, True)
        stopped.go_on()
        eventually(lambda: no_suspended(world))

    @own_pools
    def test_nobody_is_suspended_who_could_not_have_claimed(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(ONE)
        stopped = world.client()
        stopped.begin(TWO)
        pending = world.client().begin(ONE)
        stopped.stop()
        world.let_pass(30)
        assert not pending.done()
        stopped.go_on()
        assert no_suspended(world)

    @own_pools
    def test_one_that_waits_for_a_name_keeps_up_only_who_could_use_that(self, world: World) -> None:
        make_pool(world, 2)
        holder, stopped = world.client(), world.client()
        holder.acquire(FIRST)
        stopped.begin(FIRST)
        stopped.stop()
        assert names_of(world.client().acquire(ONE)) == ["T--01"]
        pending = world.client().begin(ONE)
        holder.free()
        assert not pending.done()
        let_all_pass_the_stopped(world)
        assert names_of(pending.result()) == ["T--00"]

    def test_what_expires_while_the_first_is_stopped_goes_to_the_next(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(Request("T", ttl_seconds=world.ttl_seconds))
        stopped = world.client()
        stopped.begin(ONE)
        pending = world.client().begin(ONE)
        stopped.stop()
        world.let_pass(world.ttl_seconds + 1)
        eventually(lambda: names_held(world) == [])
        let_all_pass_the_stopped(world)
        assert len(pending.result()) == 1

    @own_pools
    def test_one_that_dies_while_it_is_stopped_goes(self, world: World) -> None:
        stopped, pending = free_with_a_stopped_first(world)
        let_all_pass_the_stopped(world)
        pending.result()
        stopped.kill()
        assert the_pool(world).queue == ()


class TestGivingUp:
    def test_not_waiting_takes_what_is_free(self, world: World) -> None:
        make_pool(world, 1)
        assert len(world.client().acquire(ONE, wait=0)) == 1

    @own_pools
    def test_not_waiting_leaves_no_ticket(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        with pytest.raises(NoLease, match="1 of 1 held, nobody else waiting"):
            world.client().acquire(ONE, wait=0)
        assert the_pool(world).queue == ()

    @own_pools
    def test_not_waiting_does_not_jump_the_queue(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(ONE)
        world.client().begin(TWO)
        with pytest.raises(NoLease, match="1 of 2 held, 1 other waiting"):
            world.client().acquire(ONE, wait=0)

    @own_pools
    def test_a_timeout_takes_the_ticket_away(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        pending = world.client().begin(ONE, wait=60)
        world.let_pass(59)
        assert len(the_pool(world).queue) == 1
        world.let_pass(2)
        with pytest.raises(NoLease, match="within 1m"):
            pending.result()
        assert the_pool(world).queue == ()

    def test_a_timeout_at_the_head_lets_the_next_one_try(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(ONE)
        large = world.client().begin(TWO, wait=60)
        small = world.client().begin(ONE)
        world.let_pass(61)
        with pytest.raises(NoLease):
            large.result()
        assert len(small.result()) == 1

    def test_what_was_had_in_time_is_kept_beyond_the_deadline(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE, wait=1)
        world.let_pass(60)
        assert client.renew() == ("T--00",)

    @own_pools
    def test_a_request_can_be_withdrawn_while_it_waits(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        waiter = world.client()
        pending = waiter.begin(ONE)
        world.withdraw(waiter)
        with pytest.raises(Cancelled):
            pending.result()
        assert the_pool(world).queue == ()

    @own_pools
    def test_withdrawing_the_head_lets_the_next_one_try(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(ONE)
        large = world.client()
        waiting_large = large.begin(TWO)
        waiting_small = world.client().begin(ONE)
        world.withdraw(large)
        assert len(waiting_small.result()) == 1
        with pytest.raises(Cancelled):
            waiting_large.result()

    @own_pools
    def test_who_gave_up_can_ask_again(self, world: World) -> None:
        make_pool(world, 1)
        holder, waiter = world.client(), world.client()
        holder.acquire(ONE)
        pending = waiter.begin(ONE)
        world.withdraw(waiter)
        with pytest.raises(Cancelled):
            pending.result()
        again = waiter.begin(ONE)
        holder.free()
        assert len(again.result()) == 1


class TestTtl:
    def test_an_expired_lease_is_free_for_others(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(Request("T", ttl_seconds=world.ttl_seconds))
        with pytest.raises(NoLease):
            world.client().acquire(ONE)
        world.let_pass(world.ttl_seconds + 1)
        assert names_held(world) == []
        assert len(world.client().acquire(ONE)) == 1

    @own_pools
    def test_the_holder_of_an_expired_lease_is_told_once(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(Request("T", count=2, ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        world.client().acquire(TWO)
        the_pool(world)
        assert world.lost() == [(holder.claim_key, "T--00"), (holder.claim_key, "T--01")]

    def test_a_waiter_gets_an_expired_lease_though_nobody_touches_the_pool(
        self, world: World
    ) -> None:
        make_pool(world, 1)
        world.client().acquire(Request("T", ttl_seconds=world.ttl_seconds))
        pending = world.client().begin(ONE)
        world.let_pass(world.ttl_seconds + 1)
        assert len(pending.result()) == 1

    def test_renewing_gives_the_full_time_again(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        for _ in range(3):
            world.let_pass(world.ttl_seconds * 0.6)
            assert holder.renew() == ("T--00",)
        with pytest.raises(NoLease):
            world.client().acquire(ONE)
        assert world.lost() == []

    @own_pools
    def test_renewing_dates_the_lease(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        (lease,) = holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds / 2)
        holder.renew()
        (resource,) = the_pool(world).resources
        assert resource.lease is not None
        assert resource.lease.acquire_time == lease.acquire_time
        assert resource.lease.renew_time - lease.renew_time >= world.ttl_seconds / 2
        assert resource.lease.lease_duration_seconds == world.ttl_seconds

    def test_renewing_after_the_expiry_does_not_bring_it_back(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        assert holder.renew() == ()
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert len(world.client().acquire(ONE)) == 1

    def test_renewing_after_another_got_it_does_not_touch_the_others(self, world: World) -> None:
        make_pool(world, 1)
        holder, other = world.client(), world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        other.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds / 2)
        assert holder.renew() == ()
        world.let_pass(world.ttl_seconds / 2 + 1)
        assert other.renew() == ()

    @own_pools
    def test_renewing_with_another_ttl_it_expires_by_that_from_now_on(self, world: World) -> None:
        make_pool(world, 2)
        holder, ttl = world.client(), world.ttl_seconds
        before = holder.acquire(Request("T", count=2, ttl_seconds=ttl))
        assert holder.renew(3 * ttl) == ("T--00", "T--01")
        world.let_pass(2 * ttl)
        assert holder.renew() == ("T--00", "T--01")
        for resource, lease in zip(the_pool(world).resources, before):
            assert resource.lease is not None
            assert resource.lease.lease_duration_seconds == 3 * ttl
            assert resource.lease.fence == lease.fence
        world.let_pass(2 * ttl)
        assert holder.free() == ("T--00", "T--01")

    @own_pools
    def test_a_waiter_gets_what_expires_sooner_than_it_was_going_to(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=100 * world.ttl_seconds))
        pending = world.client().begin(ONE)
        assert holder.renew(world.ttl_seconds) == ("T--00",)
        world.let_pass(world.ttl_seconds + 1)
        assert len(pending.result()) == 1
        assert world.lost() == [(holder.claim_key, "T--00")]

    @own_pools
    def test_a_lease_without_ttl_gets_none_by_being_renewed_with_one(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        assert holder.renew(world.ttl_seconds) == ("T--00",)
        world.let_pass(10 * world.ttl_seconds)
        assert holder.renew() == ("T--00",)

    @own_pools
    def test_a_lease_without_ttl_never_expires(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        world.let_pass(1e6)
        with pytest.raises(NoLease):
            world.client().acquire(ONE)
        assert holder.renew() == ("T--00",)

    @own_pools
    def test_a_resource_may_be_held_without_ttl_after_one_with(self, world: World) -> None:
        make_pool(world, 1)
        first, second = world.client(), world.client()
        first.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        first.free()
        second.acquire(ONE)
        world.let_pass(world.ttl_seconds + 1)
        assert second.renew() == ("T--00",)
        assert world.lost() == []


class TestRelease:
    def test_twice_is_once(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE)
        assert client.free() == ("T--00",)
        assert client.free() == ()

    def test_some_may_be_given_back_and_the_others_kept(self, world: World) -> None:
        make_pool(world, 3)
        client = world.client()
        client.acquire(THREE)
        assert client.free(["T--01"]) == ("T--01",)
        assert names_held(world) == ["T--00", "T--02"]
        assert client.free() == ("T--00", "T--02")

    def test_what_another_holds_is_not_freed(self, world: World) -> None:
        make_pool(world, 2)
        client, other = world.client(), world.client()
        mine, theirs = names_of(client.acquire(ONE) + other.acquire(ONE))
        assert client.free([theirs, mine, "T--77"]) == (mine,)
        assert names_held(world) == [theirs]

    def test_a_stale_owner_frees_nothing(self, world: World) -> None:
        make_pool(world, 1)
        stale, other = world.client(), world.client()
        stale.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        other.acquire(ONE)
        assert stale.free(["T--00"]) == ()
        assert stale.free() == ()
        assert other.renew() == ("T--00",)

    def test_an_expired_lease_is_lost_not_released(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        assert holder.free() == ()
        assert world.lost() == [(holder.claim_key, "T--00")]

    def test_giving_back_does_not_count_as_loss(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE)
        client.free()
        assert world.lost() == []


@own_pools
class TestForce:
    """Claims that are ended before their time, while somebody may still use what they are on."""

    def end(
        self, world: World, holder: Client, *names: str, at_once: bool = False
    ) -> tuple[str, ...]:
        with world.engine.atomic():
            return world.pools.end_early(
                holder.claim_key, names, guard=None, reason="by an admin", at_once=at_once
            )

    def test_without_a_ttl_the_next_has_it_at_once_and_the_holder_is_told(
        self, world: World
    ) -> None:
        make_pool(world, 1)
        holder = world.client()
        (before,) = holder.acquire(ONE)
        pending = world.client().begin(ONE)
        assert self.end(world, holder, "T--00") == ("T--00",)
        (lease,) = pending.result()
        assert lease.fence > before.fence
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert holder.renew() == ()
        assert holder.free() == ()

    def test_with_one_it_is_kept_until_the_last_renewals_time_is_over(self, world: World) -> None:
        make_pool(world, 1)
        holder, waiter = world.client(), world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds / 2)
        holder.renew()
        pending = waiter.begin(ONE)
        assert self.end(world, holder, "T--00") == ("T--00",)
        (resource,) = the_pool(world).resources
        assert (resource.claim_key, resource.ended) == (holder.claim_key, "by an admin")
        world.let_pass(world.ttl_seconds * 0.8)
        assert holder.renew() == ()  # which doesn't give it more time
        assert not pending.done()
        world.let_pass(world.ttl_seconds * 0.2 + 2)
        assert len(pending.result()) == 1
        # In etcd also by who frees it, for that may be its own state directory.
        assert set(world.lost()) == {(holder.claim_key, "T--00")}

    @pytest.mark.parametrize("has_ttl", [True, False], ids=["ttl", "no ttl"])
    @pytest.mark.parametrize("is_ended_before", [True, False], ids=["ended before", "good"])
    def test_at_once_the_next_has_it_before_the_last_renewals_time_is_over(
        self, world: World, has_ttl: bool, is_ended_before: bool
    ) -> None:
        make_pool(world, 2)
        holder = world.client()
        ttl_seconds = 7200.0 if has_ttl else None
        leases = holder.acquire(Request("T", count=2, ttl_seconds=ttl_seconds))
        pending = world.client().begin(ONE)
        if is_ended_before and has_ttl:
            assert self.end(world, holder, "T--00") == ("T--00",)
            assert not pending.done()
        assert self.end(world, holder, "T--00", at_once=True) == ("T--00",)
        (lease,) = pending.result()
        assert (lease.name, lease.fence > max(each.fence for each in leases)) == ("T--00", True)
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert holder.renew() == ("T--01",)
        assert self.end(world, holder, "T--00", at_once=True) == ()  # not the next holder's
        assert holder.free() == ("T--01",)
        assert names_held(world) == ["T--00"]

    def test_at_once_frees_only_the_names_of_what_was_ended_together(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(Request("T", count=2, ttl_seconds=7200))
        assert set(self.end(world, holder, "T--00", "T--01")) == {"T--00", "T--01"}
        assert self.end(world, holder, "T--01", at_once=True) == ("T--01",)
        assert names_held(world) == ["T--00"]
        assert holder.free() == ()
        assert names_held(world) == []

    def test_who_had_it_may_give_it_up_sooner(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        pending = world.client().begin(ONE)
        self.end(world, holder, "T--00")
        assert not pending.done()
        assert holder.free() == ()  # it was released by force
        assert len(pending.result()) == 1

    def test_the_rest_of_a_claim_is_as_good_as_before(self, world: World) -> None:
        make_pool(world, 3)
        holder = world.client()
        holder.acquire(Request("T", count=3, ttl_seconds=world.ttl_seconds))
        assert self.end(world, holder, "T--01") == ("T--01",)
        assert holder.renew() == ("T--00", "T--02")
        assert holder.free(["T--00"]) == ("T--00",)
        assert names_held(world) == ["T--01", "T--02"]
        world.let_pass(world.ttl_seconds * 0.8)
        assert holder.renew() == ("T--02",)
        world.let_pass(world.ttl_seconds * 0.2 + 2)
        world.client().acquire(TWO)
        assert holder.renew() == ("T--02",)
        assert set(world.lost()) == {(holder.claim_key, "T--01")}

    def test_the_queue_goes_on_in_its_order(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        first, second = world.client(), world.client()
        pending, behind = first.begin(ONE), second.begin(ONE)
        self.end(world, holder, "T--00")
        assert len(pending.result()) == 1
        assert not behind.done()
        first.free()
        assert len(behind.result()) == 1

    def test_what_that_claim_key_does_not_hold_is_left_alone(self, world: World) -> None:
        make_pool(world, 2)
        holder, other = world.client(), world.client()
        holder.acquire(Request("T", name="T--00"))
        other.acquire(Request("T", name="T--01", ttl_seconds=world.ttl_seconds))
        assert self.end(world, holder, "T--01") == ()
        assert other.renew() == ("T--01",)
        assert world.lost() == []

    def test_twice_is_once(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        assert self.end(world, holder, "T--00") == ("T--00",)
        assert self.end(world, holder, "T--00") == ()
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert names_held(world) == ["T--00"]

    def test_a_pool_with_something_of_the_kind_can_be_deleted(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        self.end(world, holder, "T--00")
        world.pools.delete_pool("T", force=True)
        make_pool(world, 1)
        assert len(world.client().acquire(ONE)) == 1


@own_pools
class TestWaking:
    def test_a_hand_off_wakes_only_who_moves_up(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        waiters = [world.client() for _ in range(6)]
        pending = [waiter.begin(ONE) for waiter in waiters]
        for position, before in enumerate([holder, *waiters[:-1]]):
            before.free()
            pending[position].result()
        # Once to hear that it is at the head now, and once that there is something to have.
        assert all(1 <= waiter.wakeups() <= 2 for waiter in waiters)

    def test_those_further_behind_sleep_on(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        waiters = [world.client() for _ in range(4)]
        pending = [waiter.begin(ONE) for waiter in waiters]
        for _ in range(3):
            holder.free()
            pending[0].result()
            holder, waiters, pending = waiters[0], waiters[1:], pending[1:]
            assert [waiter.wakeups() for waiter in waiters[1:]] == [0] * len(waiters[1:])

    def test_nobody_looks_from_time_to_time(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        waiters = [world.client() for _ in range(3)]
        pending = [waiter.begin(ONE) for waiter in waiters]
        for before, waiting in zip([holder, *waiters], pending):
            before.free()
            waiting.result()
        assert all(waiter.timed_waits() == 0 for waiter in waiters)

    def test_a_time_limit_would_be_noticed(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        waiter = world.client()
        waiter.begin(ONE, wait=60)
        eventually(lambda: waiter.timed_waits() == 1)


@own_pools
class TestPools:
    def test_a_new_pool_is_free(self, world: World) -> None:
        make_pool(world, 2)
        pool = the_pool(world)
        assert (pool.type, pool.capacity, pool.held, pool.queue) == ("T", 2, 0, ())
        assert [resource.name for resource in pool.resources] == ["T--00", "T--01"]

    def test_a_pool_shows_who_holds_what(self, world: World) -> None:
        make_pool(world, 2)
        client = world.client()
        (lease,) = client.acquire(Request("T", labels=(("pr", "7"),)))
        held, free = the_pool(world).resources
        assert held.lease == lease
        assert held.claim_key == client.claim_key
        assert lease.labels == (("pr", "7"),)
        assert (free.lease, free.claim_key) == (None, None)

    def test_how_things_stand_for_a_waiter_agrees_with_what_is_shown(self, world: World) -> None:
        make_pool(world, 5)
        world.pools.create_pool("U", ["U--00"])
        world.client().acquire(Request("U"))
        holders = [world.client() for _ in range(3)]
        for holder in holders:
            holder.acquire(ONE)
        holders[0].free()
        waiters = []
        for number in range(3):
            request = Request("T", count=4)
            waiters.append(world.engine.waiter(Claimant(f"w{number}", "w", request), until=None))
            with world.engine.atomic():
                waiters[-1].enqueue()
            dead = world.client()
            dead.begin(request)
            dead.kill()
        eventually(lambda: len(the_pool(world).queue) == 3)
        for position, (waiter, entry) in enumerate(zip(waiters, the_pool(world).queue), start=1):
            standing = waiter.standing()
            assert standing == standing_in(the_pool(world), entry.ticket)
            assert (standing.position, standing.others) == (position, 2)
            assert (standing.held, standing.capacity) == (2, 5)
            assert standing.longest_holder == oldest_holder(world)
        world.pools.delete_pool("T", force=True)
        for waiter in waiters:
            with pytest.raises(NotFound):
                waiter.standing()
            waiter.close()

    def test_all_pools_are_listed_by_type(self, world: World) -> None:
        for pool_type in ("b", "c", "a"):
            make_pool(world, 1, pool_type)
        assert [pool.type for pool in world.pools.pools()] == ["a", "b", "c"]

    def test_a_pool_is_shown_with_how_it_grants(self, world: World) -> None:
        world.pools.create_pool("T", ["T--00"], settings=PoolSettings(pace_seconds=20, burst=2))
        make_pool(world, 1, "U")
        world.pools.change_settings("U", PoolSettings(aging_seconds=1800))
        assert [pool.settings for pool in world.pools.pools()] == [
            PoolSettings(pace_seconds=20, burst=2),
            PoolSettings(aging_seconds=1800),
        ]
        world.pools.change_settings("T", PoolSettings())
        assert the_pool(world).settings == PoolSettings()

    def test_settings_that_arent_as_they_were_seen_are_left_alone(self, world: World) -> None:
        make_pool(world, 1)
        paced, aging = PoolSettings(pace_seconds=20), PoolSettings(aging_seconds=1800)
        assert world.pools.change_settings("T", paced, seen=PoolSettings())
        noted = world.events.last_number()
        assert not world.pools.change_settings("T", aging, seen=PoolSettings())
        assert the_pool(world).settings == paced
        assert world.events.last_number() == noted
        assert world.pools.change_settings("T", aging, seen=paced)
        assert the_pool(world).settings == aging

    def test_settings_go_with_their_pool(self, world: World) -> None:
        world.pools.create_pool("T", ["T--00"], settings=PoolSettings(pace_seconds=20))
        world.pools.delete_pool("T", force=False)
        with pytest.raises(NotFound):
            world.pools.change_settings("T", PoolSettings(pace_seconds=20))
        make_pool(world, 1)
        assert the_pool(world).settings == PoolSettings()

    def test_a_pool_is_made_once(self, world: World) -> None:
        make_pool(world, 1)
        with pytest.raises(InvalidRequest, match="pool add"):
            world.pools.create_pool("T", ["other"])
        assert [resource.name for resource in the_pool(world).resources] == ["T--00"]

    def test_a_name_is_in_one_pool_only(self, world: World) -> None:
        make_pool(world, 1)
        with pytest.raises(InvalidRequest, match='"T--00" is already in pool "T"'):
            world.pools.create_pool("U", ["U--00", "T--00"])
        with pytest.raises(InvalidRequest, match='"T--00" is already in pool "T"'):
            add_resources(world.members, "T", ["T--01", "T--00"])
        assert [(pool.type, pool.capacity) for pool in world.pools.pools()] == [("T", 1)]

    def test_a_name_given_twice_is_refused(self, world: World) -> None:
        with pytest.raises(InvalidRequest, match='"T--07" is already in pool "U"'):
            world.pools.create_pool("U", ["T--07", "T--07"])
        assert world.pools.pools() == ()

    def test_an_added_resource_serves_the_waiter_at_the_head(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        pending = world.client().begin(ONE)
        add_resources(world.members, "T", ["T--05"])
        assert names_of(pending.result()) == ["T--05"]

    def test_several_added_resources_serve_several_waiters(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        pending = [world.client().begin(ONE) for _ in range(3)]
        add_resources(world.members, "T", ["a", "b", "c"])
        assert [names_of(each.result()) for each in pending] == [["a"], ["b"], ["c"]]

    def test_a_free_resource_is_removed(self, world: World) -> None:
        make_pool(world, 2)
        remove_resources(world.members, "T", ["T--00"])
        assert [resource.name for resource in the_pool(world).resources] == ["T--01"]

    def test_removing_what_is_not_there_is_refused(self, world: World) -> None:
        make_pool(world, 2)
        make_pool(world, 1, "U")
        for name in ("T--77", "U--00"):
            with pytest.raises(NotFound, match=name):
                remove_resources(world.members, "T", ["T--00", name])
        assert the_pool(world).capacity == 2

    def test_a_held_resource_is_not_removed(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(Request("T", name="T--01"))
        with pytest.raises(NotAllowed, match=f"T--01.*{holder.claim_key}.*--force"):
            remove_resources(world.members, "T", ["T--00", "T--01"])
        assert the_pool(world).capacity == 2
        assert holder.renew() == ("T--01",)

    def test_a_resource_whose_lease_has_expired_is_removed(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(Request("T", name="T--01", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        remove_resources(world.members, "T", ["T--01"])
        assert the_pool(world).capacity == 1
        assert world.lost() == [(holder.claim_key, "T--01")]

    def test_a_held_resource_is_removed_by_force_and_its_holder_told(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(ONE)
        remove_resources(world.members, "T", ["T--00"], force=True)
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert holder.renew() == ()
        assert holder.free() == ()
        assert the_pool(world).capacity == 1

    def test_a_pool_in_use_is_not_deleted(self, world: World) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE)
        with pytest.raises(NotAllowed, match=r"1 held, 0 waiting.*--force"):
            world.pools.delete_pool("T", force=False)
        assert client.renew() == ("T--00",)

    def test_a_pool_that_is_waited_for_is_not_deleted(self, world: World) -> None:
        make_pool(world, 2)
        holder = world.client()
        holder.acquire(ONE)
        world.client().begin(TWO)
        with pytest.raises(NotAllowed, match=r"1 held, 1 waiting"):
            world.pools.delete_pool("T", force=False)
        assert len(the_pool(world).queue) == 1

    def test_a_pool_deleted_by_force_tells_its_holders_and_its_waiters(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        pending = [world.client().begin(ONE) for _ in range(3)]
        world.pools.delete_pool("T", force=True)
        for each in pending:
            with pytest.raises(LeaseError, match='no pool "T"'):
                each.result()
        assert world.lost() == [(holder.claim_key, "T--00")]
        assert holder.renew() == ()
        assert world.pools.pools() == ()

    def test_a_waiter_of_a_deleted_pool_does_not_wait_in_the_new_one(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        pending = world.client().begin(ONE)
        world.pools.delete_pool("T", force=True)
        make_pool(world, 1)
        with pytest.raises(LeaseError):
            pending.result()
        assert names_held(world) == []
        assert the_pool(world).queue == ()

    def test_deleting_or_showing_what_is_not_there_is_refused(self, world: World) -> None:
        make_pool(world, 1, "azure")
        with pytest.raises(NotFound, match='did you mean "azure"'):
            world.pools.delete_pool("azur", force=True)
        with pytest.raises(NotFound, match='did you mean "azure"'):
            world.pools.pools("azur")


def test_whatever_clients_do_the_store_stays_sound(world: World) -> None:
    """Random steps of many clients; after each, the store says what a model says."""
    chance = random.Random(7)
    make_pool(world, 4)
    clients = [world.client() for _ in range(5)]
    held: dict[Client, set[str]] = {client: set() for client in clients}
    fences = itertools.count()
    last_fence = next(fences)
    for _ in range(120):
        client = chance.choice(clients)
        if held[client]:
            some = {name for name in sorted(held[client]) if chance.random() < 0.6}
            assert set(client.free(sorted(some))) == some
            held[client] -= some
        else:
            count = chance.randint(1, 3)
            free = 4 - sum(map(len, held.values()))
            try:
                leases = client.acquire(Request("T", count=count))
            except NoLease:
                assert free < count
            else:
                assert free >= count
                if world.has_fences:
                    assert min(lease.fence for lease in leases) > last_fence
                last_fence = max(lease.fence for lease in leases)
                held[client] = set(names_of(leases))
        assert names_held(world) == sorted(set().union(*held.values()))


@own_pools
class TestDefinitions:
    """What `leasectl.pools.changes` makes of what every engine has."""

    def apply(self, world: World, *definitions: Definition) -> tuple[PoolChange, ...]:
        known = world.members.members()
        changes = plan(definitions, world.pools.pools(), known=known)
        return carry_out(changes, world.pools, world.members)

    def test_pools_become_as_defined_and_then_nothing_changes(self, world: World) -> None:
        make_pool(world, 3)
        wanted = (
            NamedPool("T", ("T--00", "new")),
            NamedPool("U", ("T--01",)),
            CountedPool("V", 2, 3),
        )
        self.apply(world, *wanted)
        assert {pool.type: [r.name for r in pool.resources] for pool in world.pools.pools()} == {
            "T": ["T--00", "new"],
            "U": ["T--01"],
            "V": ["V--00", "V--01"],
        }
        assert self.apply(world, *wanted) == tuple(PoolChange(each.type) for each in wanted)

    def test_a_held_resource_leaves_with_its_release_although_others_wait(
        self, world: World
    ) -> None:
        make_pool(world, 2)
        other = world.client()
        other.acquire(Request("T", name="T--00"))
        holder = world.client()
        holder.acquire(Request("T", name="T--01"))
        for _ in range(2):
            (change,) = self.apply(world, NamedPool("T", ("T--00",)))
            assert change == PoolChange("T", staying=("T--01",))
        assert holder.renew() == ("T--01",)
        pending = world.client().begin(ONE)
        holder.free()
        assert [resource.name for resource in the_pool(world).resources] == ["T--00"]
        assert not pending.done()
        other.free()
        assert names_of(pending.result()) == ["T--00"]
        assert world.lost() == []

    def test_a_held_resource_that_is_listed_again_stays(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        holder.acquire(ONE)
        self.apply(world, NamedPool("T", ()))
        (change,) = self.apply(world, NamedPool("T", ("T--00",)))
        assert change == PoolChange("T", returning=("T--00",))
        assert self.apply(world, NamedPool("T", ("T--00",))) == (PoolChange("T"),)
        holder.free()
        assert [resource.name for resource in the_pool(world).resources] == ["T--00"]

    def test_held_resource_listed_in_another_pool_moves_unless_listed_again(
        self, world: World
    ) -> None:
        make_pool(world, 2)
        make_pool(world, 1, "U")
        holder = world.client()
        holder.acquire(Request("T", name="T--01"))
        wanted = NamedPool("T", ("T--00",)), NamedPool("U", ("U--00", "T--01"))
        for _ in range(2):
            changes = self.apply(world, *wanted)
            assert [each.awaited for each in changes] == [(), ("T--01",)]
        listed_again = NamedPool("T", ("T--00", "T--01"))
        assert self.apply(world, listed_again) == (PoolChange("T", returning=("T--01",)),)
        assert self.apply(world, listed_again) == (PoolChange("T"),)
        self.apply(world, *wanted)
        holder.free()
        assert {pool.type: [r.name for r in pool.resources] for pool in world.pools.pools()} == {
            "T": ["T--00"],
            "U": ["T--01", "U--00"],
        }

    def test_a_waiter_is_served_by_names_that_replace_all_others(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(Request("T", name="T--00"))
        pending = world.client().begin(TWO)
        self.apply(world, NamedPool("T", ("a", "b")))
        # Where it doesn't all happen at once, the waiter may come in between.
        assert set(names_of(pending.result())) < {"T--01", "a", "b"}
