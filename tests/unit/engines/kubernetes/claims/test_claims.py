"""Claims that more than one process sees: who has claimed isn't always who renews."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Callable

import pytest

from leasectl.engines.cluster.changes import renewed_ticket
from leasectl.engines.cluster.objects import Found
from leasectl.engines.cluster.waiter import ClusterWaiter
from leasectl.engines.contract import Outlook
from leasectl.engines.kubernetes.encoding import body_of, parse_object
from leasectl.engines.kubernetes.names import object_of_resource
from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

KEY = "h/1"


class TestWhatAnotherProcessRenewed:
    """By what its claimant remembers the time of such a claim is over, and it isn't."""

    @pytest.fixture
    def claimant(self, manual_clock: ManualClock) -> Process:
        api = MadeUpApi()
        claimant, keeper = (Process(api, manual_clock.clock) for _ in range(2))
        claimant.pools.create_pool("T", ["a", "b"])
        assert claimant.acquire(KEY, Request("T", count=2, ttl_seconds=60))
        for _ in range(3):
            manual_clock.advance(50)
            assert keeper.engine.renew(KEY) == ("a", "b")
        return claimant

    @pytest.mark.parametrize("names", [None, ("a", "b")])
    def test_is_released_by_whoever_has_claimed_it(
        self, claimant: Process, names: tuple[str, ...] | None
    ) -> None:
        assert claimant.engine.free(KEY, names) == ("a", "b")
        assert claimant.held() == {}
        assert claimant.lost == []

    def test_is_renewed_by_whoever_has_claimed_it(self, claimant: Process) -> None:
        assert claimant.engine.renew(KEY) == ("a", "b")
        assert sorted(claimant.held()) == ["a", "b"]

    def test_is_lost_when_nobody_renews_it_any_more(
        self, claimant: Process, manual_clock: ManualClock
    ) -> None:
        assert claimant.engine.renew(KEY) == ("a", "b")
        manual_clock.advance(60)
        assert claimant.engine.free(KEY, ("a", "b")) == ()
        assert claimant.held() == {}
        assert sorted(claimant.lost) == [(KEY, "a"), (KEY, "b")]


class TestOneOfSeveralThatCantBeRenewed:
    """A server may fail for one object and serve all others."""

    @pytest.fixture
    def api(self) -> MadeUpApi:
        return MadeUpApi()

    @pytest.fixture
    def keeper(self, api: MadeUpApi, manual_clock: ManualClock) -> Process:
        """A process that renews the claim of another one for the first time."""
        claimant, keeper = (Process(api, manual_clock.clock) for _ in range(2))
        claimant.pools.create_pool("T", ["a", "b", "c"])
        assert claimant.acquire(KEY, Request("T", count=3, ttl_seconds=60))
        return keeper

    @pytest.mark.parametrize("failing", ["a", "b", "c"])
    def test_the_others_are_renewed_and_it_is_tried_again(
        self, api: MadeUpApi, keeper: Process, manual_clock: ManualClock, failing: str
    ) -> None:
        for renewals in range(3):
            manual_clock.advance(40)
            fail_updates_of(api, failing)
            with pytest.raises(BackendUnreachable, match="broken"):
                keeper.engine.renew(KEY)
            api.before = lambda number: None
            manual_clock.advance(10)
            assert keeper.engine.renew(KEY) == ("a", "b", "c"), renewals
        assert sorted(keeper.held()) == ["a", "b", "c"]
        assert keeper.lost == []

    def test_one_that_is_known_is_renewed_without_a_look(
        self, api: MadeUpApi, keeper: Process
    ) -> None:
        keeper.engine.renew(KEY)
        before = len(api.asked)
        keeper.engine.renew(KEY)
        assert [verb for verb, _ in api.asked[before:]] == ["update"] * 3


def test_a_renewal_without_a_limit_of_its_own_keeps_that_of_its_caller(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`limited(None)` would wait for a busy server for longer than the API was opened for."""
    process = Process(MadeUpApi(), manual_clock.clock)
    process.pools.create_pool("T", ["a", "b"])
    assert process.acquire(KEY, Request("T", count=2, ttl_seconds=60))
    limits: list[float | None] = []

    def limited(until: float | None) -> AbstractContextManager[None]:
        limits.append(until)
        return nullcontext()

    monkeypatch.setattr(process.opened.context.objects, "limited", limited)
    assert process.engine.renew(KEY) == ("a", "b")
    assert limits == []


def fail_updates_of(api: MadeUpApi, name: str) -> None:
    """Have the server fail for each update of a resource."""

    def fail(number: int) -> None:
        if api.asked[number] == ("update", object_of_resource(name)):
            raise BackendUnreachable("broken")

    api.before = fail


class TestSeveralWhoEndOneClaim:
    """At once, and one of them hears nothing of its write: it must not take another's for its own.

    Between what the second sees and what it writes the first comes, or one after the other.
    """

    @pytest.fixture
    def api(self) -> MadeUpApi:
        api = MadeUpApi()
        api.repeats = True
        return api

    @pytest.fixture
    def processes(self, api: MadeUpApi, manual_clock: ManualClock) -> tuple[Process, Process]:
        first, second = (Process(api, manual_clock.clock) for _ in range(2))
        first.pools.create_pool("T", ["a"])
        assert first.acquire(KEY, Request("T", ttl_seconds=60))
        second.pools.pools()
        return first, second

    def test_one_of_them_has_released_it(
        self, api: MadeUpApi, processes: tuple[Process, Process]
    ) -> None:
        first, second = processes
        told: list[tuple[str, ...]] = []
        before(api, "update", lambda: told.append(first.engine.free(KEY, ["a"])))
        told.append(second.engine.free(KEY, ["a"]))
        assert sorted(told) == [(), ("a",)]

    def test_who_hears_nothing_has_released_it_although_it_is_held_again(
        self, api: MadeUpApi, processes: tuple[Process, Process]
    ) -> None:
        first, second = processes
        lose_answer(api, lambda: second.acquire("h/2", Request("T", ttl_seconds=60)))
        assert first.engine.free(KEY, ["a"]) == ("a",)
        assert second.engine.renew("h/2") == ("a",)

    def test_what_was_released_in_time_was_not_lost(
        self, api: MadeUpApi, processes: tuple[Process, Process], manual_clock: ManualClock
    ) -> None:
        first, observer = processes
        manual_clock.advance(59)
        (seen,) = observer.opened.context.claimed(KEY)
        assert first.engine.free(KEY, ["a"]) == ("a",)
        manual_clock.advance(2)
        assert observer.opened.context.claims.is_over(seen)
        assert not observer.opened.context.claims.expire(seen)
        assert observer.lost == []


class TestOneWhoIsRenewedAtTheLastMoment:
    def test_keeps_its_place(self, manual_clock: ManualClock) -> None:
        api = MadeUpApi()
        holder, slow, quick = (Process(api, manual_clock.clock) for _ in range(3))
        holder.pools.create_pool("T", ["a"])
        assert holder.acquire(KEY, Request("T"))
        waiters = [
            each.engine.waiter(Claimant(f"h/{n}", "job", Request("T", ttl_seconds=60)), until=None)
            for n, each in enumerate((slow, quick), start=2)
        ]
        for waiter in waiters:
            waiter.enqueue()
            assert waiter.claim().leases is None
        holder.engine.free(KEY)
        manual_clock.advance(60)
        ticket = waiters[0].ticket.object
        assert ticket is not None
        renewed = body_of(renewed_ticket(ticket, wall=2e9, counts_as=0), ticket)
        before(
            api,
            "delete",
            lambda: api.replace(slow.opened.objects.collection, ticket.id.name, renewed),
        )
        waiters[1].ticket.note(ticket_of(api, waiters[1]), sent_at=manual_clock.clock.elapsed())
        assert waiters[1].claim() == Outlook(is_behind=True)
        waiters[0].ticket.note(ticket_of(api, waiters[0]), sent_at=manual_clock.clock.elapsed())
        assert waiters[0].claim().leases is not None


def ticket_of(api: MadeUpApi, waiter: ClusterWaiter) -> Found | None:
    return parse_object(api.objects[waiter.ticket.object_name])


def before(api: MadeUpApi, verb: str, act: Callable[[], object]) -> None:
    """Have something happen right before the next request of a kind."""

    def hook(number: int) -> None:
        if api.asked[number][0] == verb:
            api.before = lambda at: None
            act()

    api.before = hook


def lose_answer(api: MadeUpApi, act: Callable[[], object]) -> None:
    """Have the next answer to an update be lost, and something happen before it is made again."""

    def hook(number: int) -> None:
        if api.asked[number][0] == "update":
            api.after = lambda at: None
            act()
            raise BackendUnreachable("no answer")

    api.after = hook


class TestAWallClockThatJumps:
    @pytest.mark.parametrize("jump", [-1_600_000_000.0, -3600.0, 3600.0, 100_000_000_000.0])
    def test_ends_nothing_and_keeps_nothing_alive(
        self, manual_clock: ManualClock, jump: float
    ) -> None:
        wall = manual_clock.clock.wall()
        clock = manual_clock.clock._replace(wall=lambda: wall)
        api = MadeUpApi()
        holder, observer = Process(api, clock), Process(api, manual_clock.clock)
        holder.pools.create_pool("T", ["a"])
        assert holder.acquire(KEY, Request("T", ttl_seconds=60))
        for _ in range(4):
            wall += jump / 4
            observer.pools.pools()
            manual_clock.advance(40)
            assert holder.engine.renew(KEY) == ("a",)
            assert observer.acquire("h/2", Request("T", ttl_seconds=60)) == ()
            observer.pools.pools()
        wall += jump
        manual_clock.advance(60)
        assert observer.acquire("h/2", Request("T", ttl_seconds=60))
        assert holder.engine.renew(KEY) == ()
        assert observer.lost == [(KEY, "a")]
