"""What holds of a request for whichever of several pools is free first, on every engine."""

from __future__ import annotations

import pytest

from leasectl.errors import Cancelled, InvalidRequest, NoLease, NotFound
from leasectl.model import Lease, Request
from tests.contract.world import Client, World, are_numbered
from tests.kit.pool_changes import remove_resources
from tests.kit.waits import eventually

A = Request("A")
B = Request("B")
EITHER = Request("A", other_types=("B",))


@pytest.fixture(autouse=True)
def pools(world: World) -> None:
    world.pools.create_pool("A", ["A--00"])
    world.pools.create_pool("B", ["B--00"])


def names_of(leases: tuple[Lease, ...]) -> list[str]:
    return [lease.name for lease in leases]


def queues(world: World) -> dict[str, list[str]]:
    """Who waits, by the pools' types."""
    return {pool.type: [entry.claim_key for entry in pool.queue] for pool in world.pools.pools()}


def held(world: World) -> list[str]:
    return [each.name for pool in world.pools.pools() for each in pool.resources if each.lease]


def both_held(world: World) -> tuple[Client, Client]:
    """Who holds A, and who holds B."""
    holders = world.client(), world.client()
    for holder, request in zip(holders, (A, B)):
        holder.acquire(request)
    return holders


class TestTheGrant:
    def test_what_is_free_is_had_at_once_the_first_type_first(self, world: World) -> None:
        one, other = world.client(), world.client()
        assert names_of(one.acquire(EITHER)) == ["A--00"]
        assert names_of(other.acquire(EITHER)) == ["B--00"]
        assert queues(world) == {"A": [], "B": []}
        assert held(world) == ["A--00", "B--00"]

    @pytest.mark.parametrize("which", [0, 1])
    def test_whichever_comes_free_first_is_had_and_no_ticket_is_left(
        self, world: World, which: int
    ) -> None:
        holders, waiter = both_held(world), world.client()
        pending = waiter.begin(EITHER)
        eventually(lambda: queues(world) == {"A": [waiter.claim_key], "B": [waiter.claim_key]})
        holders[which].free()
        assert names_of(pending.result()) == [("A--00", "B--00")[which]]
        assert queues(world) == {"A": [], "B": []}
        holders[1 - which].free()
        assert waiter.free() == (("A--00", "B--00")[which],)
        assert held(world) == []

    def test_it_is_renewed_and_expires_as_any_other(self, world: World) -> None:
        world.client().acquire(A)
        client = world.client()
        client.acquire(EITHER._replace(ttl_seconds=world.ttl_seconds))
        assert client.renew() == ("B--00",)
        client.kill()
        world.let_pass(world.ttl_seconds + 1)
        assert names_of(world.client().acquire(B, wait=None)) == ["B--00"]

    def test_no_lease_in_time_leaves_no_ticket(self, world: World) -> None:
        both_held(world)
        with pytest.raises(NoLease, match=r'"A" or "B".*: 2 of 2 held'):
            world.client().acquire(EITHER)
        assert queues(world) == {"A": [], "B": []}


class TestTheOrder:
    def test_it_waits_its_turn_in_each(self, world: World) -> None:
        (a, b), first, either = both_held(world), world.client(), world.client()
        waiting_first = first.begin(A)
        waiting_either = either.begin(EITHER)
        a.free()
        assert names_of(waiting_first.result()) == ["A--00"]
        assert not waiting_either.done()
        b.free()
        assert names_of(waiting_either.result()) == ["B--00"]

    def test_nobody_overtakes_it_in_either(self, world: World) -> None:
        (_, b), either, later = both_held(world), world.client(), world.client()
        waiting_either = either.begin(EITHER)
        eventually(lambda: queues(world)["B"] == [either.claim_key])
        waiting_later = later.begin(B)
        b.free()
        assert names_of(waiting_either.result()) == ["B--00"]
        assert not waiting_later.done()

    def test_whoever_is_behind_it_where_it_got_nothing_is_next(self, world: World) -> None:
        (a, b), either, behind = both_held(world), world.client(), world.client()
        waiting_either = either.begin(EITHER)
        eventually(lambda: queues(world)["B"] == [either.claim_key])
        waiting_behind = behind.begin(B)
        a.free()
        waiting_either.result()
        b.free()
        assert names_of(waiting_behind.result()) == ["B--00"]


class TestTheEnd:
    def test_withdrawn_it_is_in_neither(self, world: World) -> None:
        holders, client = both_held(world), world.client()
        pending = client.begin(EITHER)
        eventually(lambda: all(queues(world).values()))
        world.withdraw(client)
        with pytest.raises(Cancelled):
            pending.result()
        assert queues(world) == {"A": [], "B": []}
        for holder in holders:
            holder.free()
        assert held(world) == []

    def test_dead_it_blocks_neither(self, world: World) -> None:
        (a, b), dead = both_held(world), world.client()
        dead.begin(EITHER)
        eventually(lambda: all(queues(world).values()))
        behind = [world.client().begin(A), world.client().begin(B)]
        dead.kill()
        a.free()
        b.free()
        assert [names_of(each.result()) for each in behind] == [["A--00"], ["B--00"]]
        assert queues(world) == {"A": [], "B": []}

    def test_dead_it_shows_in_neither_queue_whoever_noticed(self, world: World) -> None:
        (a, _), dead = both_held(world), world.client()
        dead.begin(EITHER)
        eventually(lambda: all(queues(world).values()))
        behind = world.client().begin(A)
        dead.kill()
        a.free()
        behind.result()  # and B has been looked at by nobody
        assert queues(world) == {"A": [], "B": []}


class TestPoolsThatGo:
    @pytest.mark.parametrize(
        "request_", [EITHER._replace(other_types=("C",)), Request("C", other_types=("A",))]
    )
    def test_a_type_that_is_not_there_is_refused_before_anything_is_queued(
        self, world: World, request_: Request
    ) -> None:
        world.client().acquire(A)
        waiter = world.client()
        with pytest.raises(NotFound, match='no pool "C"'):
            waiter.acquire(request_, wait=None)
        assert queues(world) == {"A": [], "B": []}

    def test_it_goes_on_without_a_pool_that_is_deleted(self, world: World) -> None:
        (a, _), client = both_held(world), world.client()
        pending = client.begin(EITHER)
        eventually(lambda: all(queues(world).values()))
        world.pools.delete_pool("B", force=True)
        a.free()
        assert names_of(pending.result()) == ["A--00"]

    def test_it_begins_without_a_pool_that_is_empty(self, world: World) -> None:
        remove_resources(world.members, "A", ["A--00"])
        assert names_of(world.client().acquire(EITHER)) == ["B--00"]

    def test_it_ends_with_the_last_pool(self, world: World) -> None:
        both_held(world)
        pending = world.client().begin(EITHER)
        eventually(lambda: all(queues(world).values()))
        world.pools.delete_pool("B", force=True)
        world.pools.delete_pool("A", force=True)
        with pytest.raises(NotFound, match=r'no pool "[AB]"'):
            pending.result()

    def test_it_ends_when_none_can_meet_it(self, world: World) -> None:
        remove_resources(world.members, "A", ["A--00"])
        remove_resources(world.members, "B", ["B--00"])
        with pytest.raises(InvalidRequest, match="can never be met"):
            world.client().acquire(EITHER, wait=None)


class TestMany:
    def test_at_no_instant_do_two_hold_one_and_nobody_holds_two(self, world: World) -> None:
        requests = [A, B, EITHER, Request("B", other_types=("A",))]
        endings = [world.client().begin_rounds(request, 8) for request in requests]
        holds = sorted(
            (hold for ending in endings for hold in ending()),
            key=lambda hold: (hold.lease.name, hold.since),
        )
        assert len(holds) == 32
        for before, after in zip(holds, holds[1:]):
            if before.lease.name == after.lease.name:
                assert before.until <= after.since
        for name in ("A--00", "B--00"):
            by_grant = sorted(
                (hold.lease.grant, hold.lease.ticket) for hold in holds if hold.lease.name == name
            )
            assert are_numbered(world, [grant for grant, _ in by_grant])
            tickets = [ticket for _, ticket in by_grant]
            assert tickets == sorted(set(tickets))
        assert queues(world) == {"A": [], "B": []}
        assert held(world) == []
