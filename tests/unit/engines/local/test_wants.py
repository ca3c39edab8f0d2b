"""What is free for whom, where requests say what has to be so of it, or name one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from leasectl.engines.local import wants
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.engines.rules.membership import move
from leasectl.model import Lease, Request, Where
from leasectl.state.directory import State
from leasectl.state.named_pipe import listen
from leasectl.state.rows import encode_where
from leasectl.system.poll import is_readable
from tests.kit import recorded
from tests.kit.support import ManualClock

EU: Where = (("zone", "eu", True),)
NOT_EU: Where = (("zone", "eu", False),)


@dataclass
class Ticket:
    """As one in a queue says what it is for."""

    name: str | None = None
    where: str = ""
    count: int = 1


class Desk:
    """A pool "T" of four, two of which are in Europe."""

    def __init__(self, state: State, time: ManualClock) -> None:
        self.state = state
        self.time = time
        self.engine = LocalEngine(state, lost=lambda *_: None, clock=time.clock)
        self.sides = LocalSides(state, lost=lambda *_: None, clock=time.clock)
        self.sides.pools.create_pool("T", ["eu-1", "eu-2", "us-1", "x-1"])
        zones = {"eu-1": "eu", "eu-2": "eu", "us-1": "us"}
        self.sides.members.update(
            list(zones), lambda each, _: each._replace(properties=(("zone", zones[each.name]),))
        )
        self.waiters = 0

    def free_for(self, request: Request, *better: Ticket) -> list[str]:
        return [row["name"] for row in wants.free_for(self.state, request, better)]

    def come(self, request: Request) -> LocalWaiter:
        self.waiters += 1
        now = self.time.clock.elapsed()
        waiter = recorded.waiter(self.engine, self.state, f"h{self.waiters}", request, now=now)
        with self.engine.atomic():
            waiter.enqueue()
        return waiter

    def look(self, waiter: LocalWaiter) -> list[str] | None:
        """Whose turn it is claims; returns the names."""
        with self.engine.atomic():
            leases: Sequence[Lease] | None = waiter.claim().leases
        return None if leases is None else [lease.name for lease in leases]

    def free(self, key: str, names: Sequence[str] | None = None) -> None:
        with self.engine.atomic():
            self.engine.free(key, names)

    def take(self, request: Request) -> list[str] | None:
        return self.look(self.come(request))


@pytest.fixture
def desk(state_dir: Path, manual_clock: ManualClock) -> Iterator[Desk]:
    with contextlib.closing(State.open(str(state_dir))) as state:
        yield Desk(state, manual_clock)


@pytest.mark.parametrize(
    ("request_", "better", "found"),
    [
        # One more than is asked for, so that it is known that there are more.
        (Request("T", 1), (), ["eu-1", "eu-2"]),
        (Request("T", 4), (), ["eu-1", "eu-2", "us-1", "x-1"]),
        (Request("T", 1, where=EU), (), ["eu-1", "eu-2"]),
        (Request("T", 4, where=NOT_EU), (), ["us-1", "x-1"]),
        (Request("T", 4), (Ticket(where=encode_where(EU)),), ["us-1", "x-1"]),
        (Request("T", 4), (Ticket("us-1"), Ticket("x-1")), ["eu-1", "eu-2"]),
        (Request("T", 4, where=EU), (Ticket("eu-1"),), ["eu-2"]),
        (Request("T", 4, where=EU), (Ticket(where=encode_where(EU)),), []),
        (Request("U", 4), (), []),
    ],
)
def test_what_others_have_a_better_right_to_is_left_out(
    desk: Desk, request_: Request, better: tuple[Ticket, ...], found: list[str]
) -> None:
    assert desk.free_for(request_, *better) == found


@pytest.mark.parametrize(
    ("ticket", "enough"),
    [
        (Ticket("eu-1"), True),
        (Ticket("us-1"), False),
        (Ticket("elsewhere"), False),
        (Ticket(where=encode_where(EU), count=2), True),
        (Ticket(where=encode_where(EU), count=3), False),
        (Ticket(count=3), True),
        (Ticket(count=4), False),
    ],
)
def test_enough_is_free_for_a_ticket(desk: Desk, ticket: Ticket, enough: bool) -> None:
    assert desk.take(Request("T", name="us-1")) == ["us-1"]
    assert wants.is_enough_for(desk.state, "T", ticket) is enough


def test_blocked_ticket_does_not_get_the_next_grant(desk: Desk) -> None:
    eu = encode_where(EU)
    assert not wants.is_any_next(desk.state, "T", [])
    assert wants.is_any_next(desk.state, "T", [Ticket(where=eu, count=3), Ticket("us-1")])
    assert not wants.is_any_next(desk.state, "T", [Ticket("eu-1"), Ticket(where=eu, count=3)])


def test_what_is_wanted_is_so_or_not_of_one_name(desk: Desk) -> None:
    asked = [encode_where(EU), encode_where(NOT_EU)]
    assert wants.matching(desk.state, asked, "eu-1") == {asked[0]}
    assert wants.matching(desk.state, asked, "us-1") == {asked[1]}
    assert wants.matching(desk.state, asked, "x-1") == {asked[1]}


def test_a_waiter_is_told_of_those_alone_who_want_the_same(desk: Desk) -> None:
    assert desk.take(Request("T", 4)) is not None
    for request in (
        Request("T", where=EU),
        Request("T", where=NOT_EU),
        Request("T", name="us-1"),
        Request("T", name="eu-1"),
    ):
        desk.come(request)
    late = {each: desk.come(Request("T", name=each)).standing() for each in ("eu-1", "us-1", "x-1")}
    assert {each: found.position for each, found in late.items()} == {
        "eu-1": 3,  # behind who wants Europe, and who wants it by name
        "us-1": 3,
        "x-1": 2,
    }


class TestWhoIsWoken:
    """As something has become free, by what each could use."""

    @pytest.fixture
    def all_held(self, desk: Desk) -> Desk:
        assert desk.take(Request("T", 4)) is not None
        return desk

    def woken(self, waiters: dict[str, LocalWaiter]) -> list[str]:
        found = []
        for name, waiter in waiters.items():
            fds = {fd for fd in waiter.listen(())[0] if is_readable(fd, 0)}
            waiter.heard(fds)
            if fds:
                found.append(name)
        return found

    def come(self, desk: Desk, **requests: Request) -> dict[str, LocalWaiter]:
        waiters = {}
        for name, request in requests.items():
            waiters[name] = desk.come(request)
            assert desk.look(waiters[name]) is None
        self.woken(waiters)
        return waiters

    @pytest.mark.parametrize(
        ("freed", "woken"),
        [
            (["eu-1"], ["europe"]),
            (["us-1"], ["us"]),
            (["x-1"], ["any"]),
            (["eu-2", "us-1"], ["europe", "us"]),
            (["us-1", "x-1"], ["us", "any"]),
            (["eu-1", "eu-2"], ["europe"]),
            (["eu-1", "us-1", "x-1"], ["europe", "us", "any"]),
        ],
    )
    def test_it_is_the_best_for_each_that_is_free(
        self, all_held: Desk, freed: list[str], woken: list[str]
    ) -> None:
        waiters = self.come(
            all_held,
            europe=Request("T", where=EU),
            us=Request("T", name="us-1"),
            any=Request("T"),
            too=Request("T", name="x-1"),
        )
        all_held.free("h1", freed)
        assert self.woken(waiters) == woken

    @pytest.mark.parametrize(
        ("leaves", "woken"),
        [
            ("any", ["europe", "too"]),  # up to the first that takes any
            ("us", ["us_too", "any"]),
            ("europe", ["too"]),
        ],
    )
    def test_as_one_leaves_it_is_the_best_for_each_want_that_it_kept_from_something(
        self, all_held: Desk, leaves: str, woken: list[str]
    ) -> None:
        us, eu = Request("T", name="us-1"), Request("T", where=EU)
        any_, last = Request("T"), Request("T", name="x-1")
        waiters = self.come(
            all_held, us=us, us_too=us, any=any_, europe=eu, too=any_, eu_too=eu, last=last
        )
        with all_held.engine.atomic():
            waiters[leaves].dequeue()
        assert [each for each in self.woken(waiters) if each != leaves] == woken

    @pytest.mark.parametrize(
        "request_", [Request("T", name="eu-1"), Request("T", where=EU), Request("T")]
    )
    def test_as_one_claims_others_may_have_something_but_not_behind_who_took_all(
        self, all_held: Desk, request_: Request
    ) -> None:
        waiters = self.come(all_held, first=request_, second=Request("T"), third=Request("T"))
        all_held.free("h1", ["eu-1"])
        self.woken(waiters)
        with contextlib.closing(listen(all_held.state.witness_pipe)) as witness:
            assert all_held.look(waiters.pop("first")) == ["eu-1"]
            assert self.woken(waiters) == ["second"]
            assert is_readable(witness.fd, 0) == (request_ != Request("T"))

    def test_behind_who_has_left_something_others_may_have_that(self, all_held: Desk) -> None:
        waiters = self.come(all_held, first=Request("T"), second=Request("T"))
        all_held.free("h1", ["eu-1", "eu-2"])
        self.woken(waiters)
        with contextlib.closing(listen(all_held.state.witness_pipe)) as witness:
            assert all_held.look(waiters.pop("first")) is not None
            assert self.woken(waiters) == ["second"]
            assert is_readable(witness.fd, 0)


class TestRenewals:
    def test_leave_alone_what_has_run_out_of_several(self, desk: Desk) -> None:
        assert desk.take(Request("T", 3, ttl_seconds=60.0)) == ["eu-1", "eu-2", "us-1"]
        desk.time.advance(10.0)
        now = desk.time.clock.elapsed()
        desk.state.db.execute("UPDATE resource SET expires_at = ? WHERE name = 'eu-2'", (now,))
        with desk.engine.atomic():
            assert desk.engine.renew("h1", ttl_seconds=None) == ("eu-1", "us-1")
        assert self.left(desk) == {"eu-1": 60.0, "us-1": 60.0}

    def test_for_another_time_are_told_to_who_waits(self, desk: Desk) -> None:
        """It may be free sooner than they know."""
        assert desk.take(Request("T", 4, ttl_seconds=60.0)) is not None
        waiter = desk.come(Request("T"))
        with desk.engine.atomic():
            assert waiter.claim().look_again_at == desk.time.clock.elapsed() + 60.0
        with desk.engine.atomic():
            desk.engine.renew("h1", ttl_seconds=None)
        assert not waiter.heard({fd for fd in waiter.listen(())[0] if is_readable(fd, 0)})
        with desk.engine.atomic():
            desk.engine.renew("h1", ttl_seconds=5.0)
        assert is_readable(waiter._pipe.fd, 0)
        with desk.engine.atomic():
            assert waiter.claim().look_again_at == desk.time.clock.elapsed() + 5.0

    def test_are_told_where_the_resource_goes_when_it_is_free(self, desk: Desk) -> None:
        desk.sides.pools.create_pool("U", ["u-1"])
        assert desk.take(Request("U")) == ["u-1"]
        assert desk.take(Request("T", name="us-1", ttl_seconds=60.0)) == ["us-1"]
        desk.sides.members.update(
            ["us-1"], lambda each, pools: move(each, "U", pools, when_free=True)
        )
        waiter = desk.come(Request("U"))
        assert desk.look(waiter) is None
        with desk.engine.atomic():
            desk.engine.renew("h2", ttl_seconds=5.0)
        assert is_readable(waiter._pipe.fd, 0)

    def left(self, desk: Desk) -> dict[str, float | None]:
        (pool,) = desk.sides.pools.pools("T")
        return {
            each.name: None if each.expires_in_seconds is None else round(each.expires_in_seconds)
            for each in pool.resources
            if each.lease is not None
        }
