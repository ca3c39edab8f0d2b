"""What holds of a request for resources of each of several pools, on every engine."""

from __future__ import annotations

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.errors import Cancelled, InvalidRequest, NoLease, NotFound
from leasectl.model import Request
from tests.contract.test_either_contract import held, names_of, queues
from tests.contract.world import World
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.waits import eventually

A = Request("A")
B = Request("B")
BOTH = Request("A", other_types=("B",), needs_all=True)
BOTH_REVERSED = Request("B", other_types=("A",), needs_all=True)
PACE_SECONDS = 30.0
BOTH_NAMES = ["A--00", "B--00"]
NOBODY: dict[str, list[str]] = {"A": [], "B": []}


@pytest.fixture(autouse=True)
def pools(world: World) -> None:
    world.pools.create_pool("A", ["A--00"])
    world.pools.create_pool("B", ["B--00"])


def waits_in_both(world: World, claim_key: str) -> None:
    eventually(lambda: all(claim_key in each for each in queues(world).values()))


def parked(world: World, pool_type: str) -> list[str]:
    """Whose tickets others may pass."""
    (pool,) = world.pools.pools(pool_type)
    return [entry.claim_key for entry in pool.queue if entry.suspended]


class TestTheGrant:
    def test_one_of_each_is_had_at_once_in_the_order_asked_for(self, world: World) -> None:
        one = world.client()
        assert names_of(one.acquire(BOTH_REVERSED)) == ["B--00", "A--00"]
        assert (queues(world), held(world)) == (NOBODY, BOTH_NAMES)
        assert sorted(one.free()) == BOTH_NAMES
        assert held(world) == []

    @pytest.mark.parametrize("first", [0, 1])
    def test_nothing_is_had_before_all_can_be(self, world: World, first: int) -> None:
        holders, waiter = [world.client(), world.client()], world.client()
        for holder, request in zip(holders, (A, B)):
            holder.acquire(request)
        pending = waiter.begin(BOTH)
        waits_in_both(world, waiter.claim_key)
        holders[first].free()
        assert not pending.done()
        holders[1 - first].free()
        assert names_of(pending.result()) == BOTH_NAMES
        assert queues(world) == NOBODY

    def test_a_count_is_of_each(self, world: World) -> None:
        add_resources(world.members, "A", ["A--01"])
        add_resources(world.members, "B", ["B--01", "B--02"])
        leases = world.client().acquire(BOTH._replace(count=2))
        assert names_of(leases) == ["A--00", "A--01", "B--00", "B--01"]
        assert all(lease.fence and lease.grant for lease in leases)

    def test_it_is_renewed_and_expires_as_any_other(self, world: World) -> None:
        client = world.client()
        client.acquire(BOTH._replace(ttl_seconds=world.ttl_seconds))
        assert sorted(client.renew()) == BOTH_NAMES
        client.kill()
        world.let_pass(world.ttl_seconds + 1)
        assert names_of(world.client().acquire(BOTH, wait=None)) == BOTH_NAMES

    def test_no_lease_in_time_leaves_nothing(self, world: World) -> None:
        world.client().acquire(B)
        with pytest.raises(NoLease, match=r'"A" and "B".*: 1 of 2 held'):
            world.client().acquire(BOTH)
        assert (queues(world), held(world)) == (NOBODY, ["B--00"])

    def test_it_waits_for_the_pace_of_each(self, world: World) -> None:
        world.pools.change_settings("A", PoolSettings(pace_seconds=PACE_SECONDS))
        first, second = world.client(), world.client()
        first.acquire(BOTH)
        first.free()
        pending = second.begin(BOTH)
        waits_in_both(world, second.claim_key)
        assert not pending.done()
        world.let_pass(PACE_SECONDS + 1)
        assert names_of(pending.result()) == BOTH_NAMES


class TestTheOrder:
    def test_others_use_what_is_free_while_it_is_not_next_everywhere(self, world: World) -> None:
        holder, first, both, other = (world.client() for _ in range(4))
        holder.acquire(B)
        waiting_first = first.begin(B)
        eventually(lambda: queues(world)["B"] == [first.claim_key])
        waiting_both = both.begin(BOTH)
        waits_in_both(world, both.claim_key)
        eventually(lambda: parked(world, "A") == [both.claim_key])
        assert names_of(other.begin(A).result()) == ["A--00"]  # which it could have had
        other.free()
        holder.free()
        waiting_first.result()
        first.free()
        assert names_of(waiting_both.result()) == BOTH_NAMES

    def test_once_it_is_next_everywhere_nobody_overtakes_it(self, world: World) -> None:
        holder, both, later = world.client(), world.client(), world.client()
        holder.acquire(B)
        waiting_both = both.begin(BOTH)
        waits_in_both(world, both.claim_key)
        waiting_later = later.begin(A)
        eventually(lambda: later.claim_key in queues(world)["A"])
        assert not waiting_later.done()
        holder.free()
        assert names_of(waiting_both.result()) == BOTH_NAMES
        both.free()
        assert names_of(waiting_later.result()) == ["A--00"]

    @pytest.mark.parametrize("last", [A, B])
    def test_it_counts_again_when_its_last_predecessor_goes(
        self, world: World, last: Request
    ) -> None:
        holders, before, both, later = [world.client(), world.client()], *_clients(world, 3)
        for holder, request in zip(holders, (A, B)):
            holder.acquire(request)
        waiting_before = before.begin(last)
        eventually(lambda: queues(world)[last.type] == [before.claim_key])
        waiting_both = both.begin(BOTH)
        waits_in_both(world, both.claim_key)
        other = B if last == A else A
        waiting_later = later.begin(other)
        eventually(lambda: len(queues(world)[other.type]) == 2)
        holders[last == B].free()
        waiting_before.result()
        eventually(lambda: parked(world, other.type) == [])
        holders[other == B].free()
        before.free()
        assert names_of(waiting_both.result()) == BOTH_NAMES
        assert not waiting_later.done()
        both.free()
        waiting_later.result()

    def test_two_that_name_the_pools_the_other_way_round_both_come(self, world: World) -> None:
        holders = [world.client(), world.client()]
        for holder, request in zip(holders, (A, B)):
            holder.acquire(request)
        waiters = [world.client() for _ in range(4)]
        waiting = [each.begin((BOTH, BOTH_REVERSED)[n % 2]) for n, each in enumerate(waiters)]
        for each in waiters:
            waits_in_both(world, each.claim_key)
        for holder in holders:
            holder.free()
        left = list(range(4))
        while left:
            eventually(lambda: any(waiting[n].done() for n in left))
            (done,) = [n for n in left if waiting[n].done()]
            left.remove(done)
            assert sorted(names_of(waiting[done].result())) == BOTH_NAMES
            waiters[done].free()
        assert (queues(world), held(world)) == (NOBODY, [])


def _clients(world: World, number: int) -> list:  # type: ignore[type-arg]
    return [world.client() for _ in range(number)]


class TestTheEnd:
    def test_withdrawn_it_is_in_no_queue(self, world: World) -> None:
        world.client().acquire(B)
        client = world.client()
        pending = client.begin(BOTH)
        waits_in_both(world, client.claim_key)
        world.withdraw(client)
        with pytest.raises(Cancelled):
            pending.result()
        assert (queues(world), held(world)) == (NOBODY, ["B--00"])

    def test_dead_it_blocks_nobody(self, world: World) -> None:
        holder, dead = world.client(), world.client()
        holder.acquire(B)
        dead.begin(BOTH)
        waits_in_both(world, dead.claim_key)
        behind = [world.client().begin(A), world.client().begin(B)]
        dead.kill()
        holder.free()
        assert [names_of(each.result()) for each in behind] == [["A--00"], ["B--00"]]
        assert queues(world) == NOBODY


class TestPoolsThatGo:
    def test_a_type_that_is_not_there_is_refused_before_anything_is_queued(
        self, world: World
    ) -> None:
        world.client().acquire(A)
        with pytest.raises(NotFound, match='no pool "C"'):
            world.client().acquire(BOTH._replace(other_types=("C",)), wait=None)
        assert queues(world) == NOBODY

    def test_too_many_of_one_are_refused(self, world: World) -> None:
        add_resources(world.members, "A", ["A--01"])
        with pytest.raises(InvalidRequest, match="B"):
            world.client().acquire(BOTH._replace(count=2), wait=None)
        assert (queues(world), held(world)) == (NOBODY, [])

    def test_it_ends_with_any_of_them(self, world: World) -> None:
        world.client().acquire(B)
        client = world.client()
        pending = client.begin(BOTH)
        waits_in_both(world, client.claim_key)
        world.pools.delete_pool("A", force=True)
        with pytest.raises(NotFound, match='no pool "A"'):
            pending.result()
        assert queues(world) == {"B": []}

    def test_what_can_not_be_met_now_blocks_no_other_pool(self, world: World) -> None:
        world.client().acquire(B)
        client = world.client()
        pending = client.begin(BOTH)
        waits_in_both(world, client.claim_key)
        remove_resources(world.members, "B", ["B--00"], force=True)
        eventually(lambda: parked(world, "A") == [client.claim_key])
        assert names_of(world.client().begin(A).result()) == ["A--00"]
        assert not pending.done()


class TestMany:
    def test_at_no_instant_do_two_hold_one(self, world: World) -> None:
        requests = [A, B, BOTH, BOTH_REVERSED, BOTH]
        endings = [world.client().begin_rounds(request, 6) for request in requests]
        holds = sorted(
            (hold for ending in endings for hold in ending()),
            key=lambda hold: (hold.lease.name, hold.since),
        )
        assert len(holds) == 6 * (1 + 1 + 2 + 2 + 2)
        for before, after in zip(holds, holds[1:]):
            if before.lease.name == after.lease.name:
                assert before.until <= after.since
        assert (queues(world), held(world)) == (NOBODY, [])
