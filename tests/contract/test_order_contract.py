"""Whose turn it is by priority and by time waited, on every engine."""

from __future__ import annotations

import pytest

from leasectl.engines.cluster.objects import WAITER_TTL_SECONDS
from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.errors import NoLease
from leasectl.model import Claimant, Lease, Request
from tests.contract.world import Client, Pending, World, are_numbered
from tests.kit.waits import eventually

AGING = 100.0


def one(priority: int = 0, *, name: str | None = None) -> Request:
    return Request("T", priority=priority, name=name)


def two(priority: int = 0) -> Request:
    return Request("T", count=2, priority=priority)


def make_pool(world: World, capacity: int, *, aging: float = 0.0) -> None:
    names = [f"T--{number:02d}" for number in range(capacity)]
    settings = PoolSettings(aging_seconds=aging) if aging else NO_SETTINGS
    world.pools.create_pool("T", names, settings=settings)


def the_pool(world: World) -> Pool:
    (pool,) = world.pools.pools("T")
    return pool


def queue(world: World) -> list[str]:
    """Who waits, in the order in which they will be served."""
    return [entry.claim_key for entry in the_pool(world).queue]


def keys(*clients: Client) -> list[str]:
    return [client.claim_key for client in clients]


def names_of(leases: tuple[Lease, ...]) -> list[str]:
    return [lease.name for lease in leases]


def holding(world: World, request: Request | None = None) -> Client:
    holder = world.client()
    holder.acquire(request or one())
    return holder


def waiting(world: World, request: Request) -> tuple[Client, Pending]:
    client = world.client()
    return client, client.begin(request)


def serve(holder: Client, waiters: list[tuple[Client, Pending]]) -> None:
    """See that in a pool of one these are served one after the other, and nobody before."""
    for number, (client, pending) in enumerate(waiters):
        holder.free()
        assert len(pending.result()) == 1
        assert not any(later.done() for _, later in waiters[number + 1 :])
        holder = client


class TestPriority:
    def test_the_highest_is_served_first_and_of_equals_who_came_first(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        low, zero, high = (waiting(world, one(each)) for each in (-5, 0, 7))
        high_again, zero_again = waiting(world, one(7)), waiting(world, one(0))
        order = [high, high_again, zero, zero_again, low]
        assert queue(world) == keys(*(client for client, _ in order))
        serve(holder, order)

    def test_the_queue_shows_it(self, world: World) -> None:
        make_pool(world, 1)
        holding(world)
        waiting(world, one(-100))
        waiting(world, one(100))
        shown = [(each.priority, each.effective_priority) for each in the_pool(world).queue]
        assert shown == [(100, 100), (-100, -100)]

    def test_grants_are_numbered_in_the_order_of_grants(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        _, waiting_later = waiting(world, one())
        sooner, waiting_sooner = waiting(world, one(1))
        holder.free()
        (first,) = waiting_sooner.result()
        sooner.free()
        (second,) = waiting_later.result()
        assert are_numbered(world, [first.grant, second.grant], first=2)
        assert first.ticket > second.ticket

    def test_a_newcomer_passes_the_head_until_that_has_claimed(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        head, newcomer = waiting(world, one()), waiting(world, one(1))
        serve(holder, [newcomer, head])

    def test_it_takes_at_once_what_a_group_at_the_head_waits_for(self, world: World) -> None:
        make_pool(world, 2)
        holding(world)
        waiting(world, two())
        for priority in (-1, 0):
            with pytest.raises(NoLease):
                world.client().acquire(one(priority))
        assert names_of(world.client().acquire(one(1))) == ["T--01"]

    def test_a_group_is_passed_by_nobody_of_its_own_or_a_lower_priority(self, world: World) -> None:
        make_pool(world, 2)
        holder = holding(world)
        _, group = waiting(world, two(3))
        others = [waiting(world, one(each)) for each in (3, 2, -1)]
        holder.free()
        assert len(group.result()) == 2
        assert not any(pending.done() for _, pending in others)

    def test_a_group_passes_those_below_it(self, world: World) -> None:
        make_pool(world, 2)
        first, second = holding(world), holding(world)
        _, below = waiting(world, one())
        _, group = waiting(world, two(1))
        first.free()
        eventually(lambda: the_pool(world).held == 1)
        assert not below.done()
        second.free()
        assert len(group.result()) == 2
        assert not below.done()

    def test_one_that_is_passed_is_told_its_place(self, world: World) -> None:
        make_pool(world, 1)
        holding(world)
        claimant = Claimant("w", "w", one())
        waiter = world.engine.waiter(claimant, until=None)
        with world.engine.atomic():
            waiter.enqueue()
        assert waiter.standing().position == 1
        waiting(world, one(1))
        waiting(world, one())
        assert (waiter.standing().position, waiter.standing().others) == (2, 2)
        with world.engine.atomic():
            waiter.dequeue()
        waiter.close()

    def test_one_that_gives_up_lets_the_one_it_has_passed_go_on(self, world: World) -> None:
        make_pool(world, 2)
        holding(world)
        above, _ = waiting(world, two(1))
        _, below = waiting(world, one())
        assert not below.done()
        world.withdraw(above)
        assert names_of(below.result()) == ["T--01"]

    def test_one_that_dies_lets_the_one_it_has_passed_go_on(self, world: World) -> None:
        make_pool(world, 2)
        holding(world)
        dead, _ = waiting(world, two(1))
        _, below = waiting(world, one())
        assert not below.done()
        dead.kill()
        assert names_of(below.result()) == ["T--01"]

    def test_a_newcomer_that_dies_after_the_release_delays_nobody(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        _, below = waiting(world, one())
        dead, _ = waiting(world, one(1))
        dead.stop()
        holder.free()
        dead.kill()
        assert len(below.result()) == 1


class TestNames:
    def test_a_better_one_for_another_name_keeps_nobody_back(self, world: World) -> None:
        make_pool(world, 2)
        holding(world, one(name="T--00"))
        waiting(world, one(9, name="T--00"))
        assert names_of(world.client().acquire(one())) == ["T--01"]

    def test_what_a_better_one_waits_for_by_name_is_left_to_it(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        anyone, particular = waiting(world, one()), waiting(world, one(1, name="T--00"))
        serve(holder, [particular, anyone])

    def test_one_for_a_name_is_passed_by_a_better_one_for_any(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        particular, anyone = waiting(world, one(name="T--00")), waiting(world, one(1))
        serve(holder, [anyone, particular])


class TestTheStopped:
    def test_a_better_one_that_is_stopped_is_passed(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        _, below = waiting(world, one())
        stopped, _ = waiting(world, one(1))
        stopped.stop()
        holder.free()
        long = SUSPENDED_AFTER_SECONDS if world.keeps_stopped else WAITER_TTL_SECONDS
        world.let_pass(long + 1)
        assert len(below.result()) == 1

    def test_it_counts_again_when_it_is_continued(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        passing, below = waiting(world, one())
        stopped, high = waiting(world, one(1))
        stopped.stop()
        holder.free()
        long = SUSPENDED_AFTER_SECONDS if world.keeps_stopped else WAITER_TTL_SECONDS
        world.let_pass(long + 1)
        below.result()
        _, last = waiting(world, one())
        stopped.go_on()
        eventually(lambda: [each.priority for each in the_pool(world).queue] == [1, 0])
        eventually(lambda: not any(each.suspended for each in the_pool(world).queue))
        passing.free()
        assert len(high.result()) == 1
        assert not last.done()


class TestAging:
    def test_each_such_time_waited_counts_as_one(self, world: World) -> None:
        make_pool(world, 1, aging=AGING)
        holder = holding(world)
        old = waiting(world, one())
        world.let_pass(2.5 * AGING)
        less, same, more = (waiting(world, one(each)) for each in (1, 2, 3))
        shown = {each.claim_key: each for each in the_pool(world).queue}
        assert shown[old[0].claim_key].effective_priority == 2
        assert shown[old[0].claim_key].priority == 0
        order = [more, old, same, less]
        assert queue(world) == keys(*(client for client, _ in order))
        serve(holder, order)

    def test_nobody_starves_behind_those_that_are_better_from_the_start(self, world: World) -> None:
        make_pool(world, 1, aging=AGING)
        holder = holding(world)
        _, old = waiting(world, one(-2))
        for _ in range(2):
            better, pending = waiting(world, one())
            world.let_pass(AGING * 0.9)
            holder.free()
            pending.result()
            assert not old.done()
            holder = better
        waiting(world, one())
        world.let_pass(AGING * 0.5)
        holder.free()
        assert len(old.result()) == 1

    def test_one_that_has_become_better_takes_what_the_head_has_too_little_with(
        self, world: World
    ) -> None:
        make_pool(world, 2, aging=AGING)
        holding(world)
        single, pending = waiting(world, one(-1))
        pending.result()
        waiting(world, one(-1))
        world.let_pass(AGING / 2)
        _, group = waiting(world, two())
        single.free()
        eventually(lambda: the_pool(world).held == 1)
        world.let_pass(AGING * 0.6)  # now it counts as much as the group, and was there first
        eventually(lambda: the_pool(world).held == 2)
        assert not group.done()

    def test_those_who_already_wait_age_from_when_they_came(self, world: World) -> None:
        make_pool(world, 1)
        holder = holding(world)
        old = waiting(world, one())
        world.let_pass(1.5 * AGING)
        young = waiting(world, one(1))
        assert queue(world) == keys(young[0], old[0])
        world.pools.change_settings("T", PoolSettings(aging_seconds=AGING))
        eventually(lambda: queue(world) == keys(old[0], young[0]))
        serve(holder, [old, young])

    def test_without_it_waiting_is_worth_nothing_any_more(self, world: World) -> None:
        make_pool(world, 1, aging=AGING)
        holder = holding(world)
        old = waiting(world, one())
        world.let_pass(1.5 * AGING)
        young = waiting(world, one(1))
        world.pools.change_settings("T", NO_SETTINGS)
        eventually(lambda: queue(world) == keys(young[0], old[0]))
        serve(holder, [young, old])


class TestWaking:
    def test_where_nobody_is_better_than_who_came_before_nobody_looks_at_the_time(
        self, world: World
    ) -> None:
        if world.ages_itself:
            pytest.skip("there each waiter looks at the time, for whoever may come")
        make_pool(world, 1, aging=AGING)
        holder = holding(world)
        waiters = [waiting(world, one()) for _ in range(3)]
        serve(holder, waiters)
        assert all(client.timed_waits() == 0 for client, _ in waiters)

    def test_those_below_a_newcomer_but_the_first_sleep_on(self, world: World) -> None:
        make_pool(world, 1)
        holding(world)
        below = [waiting(world, one())[0] for _ in range(3)]
        waiting(world, one(1))
        eventually(lambda: len(queue(world)) == 4)
        assert [client.wakeups() for client in below[1:]] == [0, 0]
