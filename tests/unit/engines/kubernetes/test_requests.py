"""How many requests it takes, and that none of them, lost or last, leaves anything behind."""

from __future__ import annotations

import contextlib
from typing import Callable

import pytest

from leasectl.engines.cluster.objects import Selection
from leasectl.engines.facts import PoolSettings
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Claimant, Request
from leasectl.system import afterwards
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

ONE = Request("T", ttl_seconds=30.0)
TWO = Request("T", count=2, ttl_seconds=30.0)
NAMES = ["a", "b", "c"]


class World:
    """A server and a pool of three, the processes that use it, and their time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.api = MadeUpApi()
        self.process().pools.create_pool("T", NAMES)
        self.api.asked.clear()

    def process(self) -> Process:
        return Process(self.api, self.clock.clock)

    def asked(self, act: Callable[[], object]) -> list[str]:
        """What is asked for something, in verbs."""
        self.api.asked.clear()
        act()
        return [verb for verb, _ in self.api.asked]

    def is_clean(self) -> bool:
        """Tell whether nothing is held, nobody waits, and all of the pool is there."""
        (pool,) = self.process().pools.pools()
        names = [each.name for each in pool.resources]
        return names == NAMES and pool.held == 0 and not pool.queue


@pytest.fixture
def world(manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which what nobody waits for is done at once, by nobody else."""

    def begin(work: Callable[[], object]) -> None:
        with contextlib.suppress(Exception):
            work()

    monkeypatch.setattr(afterwards, "begin", begin)
    return World(manual_clock)


class TestHowMany:
    def test_it_takes_two_where_nobody_waits(self, world: World) -> None:
        process = world.process()
        assert world.asked(lambda: process.acquire("k/1", ONE)) == ["list", "update"]
        assert world.asked(lambda: process.engine.renew("k/1")) == ["update"]
        assert world.asked(lambda: process.engine.free("k/1", ["a"])) == ["update"]

    def test_it_takes_one_more_for_each_more_resource(self, world: World) -> None:
        process = world.process()
        assert world.asked(lambda: process.acquire("k/1", TWO)) == ["list", "update", "update"]
        assert world.asked(lambda: process.engine.renew("k/1")) == ["update", "update"]

    def test_another_process_finds_what_is_held_first(self, world: World) -> None:
        world.process().acquire("k/1", TWO)
        renewing, freeing = world.process(), world.process()
        assert world.asked(lambda: renewing.engine.renew("k/1")) == ["list", "update", "update"]
        assert world.asked(lambda: renewing.engine.renew("k/1")) == ["update", "update"]
        freed = world.asked(lambda: freeing.engine.free("k/1", ["b"]))
        assert freed == ["get", "update"]

    def test_under_a_pace_it_takes_one_more(self, world: World) -> None:
        process = world.process()
        process.pools.change_settings("T", PoolSettings(pace_seconds=5.0))
        assert world.asked(lambda: process.acquire("k/1", ONE)) == ["list", "update", "update"]

    def test_not_waiting_takes_a_ticket_and_takes_it_away(self, world: World) -> None:
        process = world.process()
        process.acquire("k/1", Request("T", count=3))
        asked = world.asked(lambda: process.acquire("k/2", ONE))
        assert asked == ["list", "create", "list", "delete"]

    def test_status_takes_one(self, world: World) -> None:
        process = world.process()
        assert world.asked(process.pools.pools) == ["list"]


class TestNoAnswerAtAll:
    """The request was perhaps carried out, and the deadline has passed."""

    @pytest.mark.parametrize("is_done", [True, False])
    @pytest.mark.parametrize("number", range(8))
    def test_leaves_nothing_that_isnt_found_by_the_claim_key(
        self, world: World, number: int, is_done: bool
    ) -> None:
        process = world.process()
        failed = []

        def fail(at: int) -> None:
            if at == number:
                failed.append(at)
                raise BackendUnreachable("no answer")

        setattr(world.api, "after" if is_done else "before", fail)
        waiter = process.engine.waiter(Claimant("k/1", "job/1/host/1", TWO), until=None)
        try:
            waiter.enqueue()
            while waiter.claim().leases is None:
                pass
            process.engine.renew("k/1")
            process.engine.free("k/1")
        except LeaseError:
            waiter.dequeue()
        world.api.before = world.api.after = lambda at: None
        world.process().recover("k/1")
        assert world.is_clean()

    def test_of_a_claim_is_asked_for_before_it_is_tried_again(self, world: World) -> None:
        process = world.process()

        def fail(at: int) -> None:
            if at == 2:  # the second of two claims
                raise BackendUnreachable("no answer")

        world.api.after = fail
        waiter = process.engine.waiter(Claimant("k/1", "job/1/host/1", TWO), until=None)
        waiter.enqueue()
        with pytest.raises(BackendUnreachable):
            waiter.claim()
        leases = waiter.claim().leases
        assert leases is not None
        assert [each.name for each in leases] == ["a", "b"]
        assert sorted(process.held()) == ["a", "b"]


class TestATicketThatIsLeft:
    """Its process got what it waited for, and was killed before the ticket was taken away."""

    @pytest.fixture
    def left(self, world: World, monkeypatch: pytest.MonkeyPatch) -> Process:
        """A process of the same state directory, where it has happened."""
        first, second = world.process(), world.process()
        first.acquire("k/0", Request("T", count=3))
        waiter = second.engine.waiter(Claimant("k/1", "job/1/host/1", TWO), until=None)
        waiter.enqueue()
        assert waiter.claim().leases is None
        first.engine.free("k/0")
        with monkeypatch.context() as patch:
            patch.setattr(afterwards, "begin", lambda work: None)
            assert waiter.claim().leases is not None
        return world.process()

    def tickets(self, world: World) -> int:
        return len(world.process().opened.objects.list(Selection(kinds=("ticket",))).items)

    def test_nor_when_that_was_given_back_and_goes_with_who_has_it_next(
        self, world: World, left: Process
    ) -> None:
        left.engine.free("k/1", ["a", "b"])
        assert world.is_clean()
        assert self.tickets(world) == 1
        assert world.process().acquire("k/2", Request("T", count=3))
        assert self.tickets(world) == 0

    def test_one_that_gave_back_a_part_and_waits_on_is_heeded(self, world: World) -> None:
        first, second = world.process(), world.process()
        first.acquire("k/0", Request("T", count=3))
        waiter = second.engine.waiter(Claimant("k/1", "job/1/host/1", TWO), until=None)
        waiter.enqueue()
        waiter.claim()
        first.engine.free("k/0")
        asked = len(world.api.asked)
        remembered: list[tuple[str, ...]] = []

        def interfere(at: int) -> None:
            verbs = [verb for verb, _ in world.api.asked[asked:]]
            if verbs == ["list", "update", "update"]:  # it has one, and is about to have the other
                there = world.api.objects["b"]
                world.api.objects["b"] = {**there, "metadata": {**there["metadata"]}}
                world.api.objects["b"]["metadata"]["resourceVersion"] = str(10_000)
            elif verbs[2:] == ["update", "get", "update", "list"]:
                seen = second.opened.context.resource("a")
                assert seen is not None
                remembered.append(seen.had_by)

        world.api.before = interfere
        assert waiter.claim().leases is not None
        assert remembered == [()]

    def test_it_is_remembered_until_it_goes_whoever_is_killed(
        self, world: World, left: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left.engine.free("k/1", ["a", "b"])
        with monkeypatch.context() as patch:
            patch.setattr(afterwards, "begin", lambda work: None)
            for number in range(2, 5):  # by whoever has the next
                leases = world.process().acquire(f"k/{number}", TWO)
                left.engine.free(f"k/{number}", [each.name for each in leases])
                assert world.is_clean()
            assert self.tickets(world) == 1
        world.process().acquire("k/5", Request("T", count=3))
        assert self.tickets(world) == 0


class TestAForeignHand:
    def test_a_note_that_others_write_keeps_nobody_alive(self, world: World) -> None:
        dead, observer = world.process(), world.process()
        dead.acquire("k/1", ONE)
        objects = observer.opened.objects
        for _ in range(4):
            observer.pools.pools()
            world.clock.advance(10.0)
            there = objects.get("a")
            assert there is not None
            annotations = {**there["metadata"]["annotations"], "example.com/x": str(_)}
            body = {**there, "metadata": {**there["metadata"], "annotations": annotations}}
            world.api.replace(objects.collection, "a", body)
        assert observer.held() == {}
        assert observer.lost == [("k/1", "a")]
