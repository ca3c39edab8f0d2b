"""Names that join their pool, perhaps as held by whoever brings them."""

from __future__ import annotations

import os
from typing import Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import LeaseError, NotAllowed
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.recovery import recover
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, whole
from leasectl.pools import memberships
from leasectl.pools.joining import end_stay, hold, join, join_again, join_held, lifetime, stay
from leasectl.state.watched import Stay
from leasectl.system.process import identify
from tests.kit.support import ManualClock

ME = identify(os.getpid())


def names(service: Service, pool_type: str = "A") -> list[str]:
    (pool,) = service.pools.pools(pool_type)
    return [each.name for each in pool.resources]


def joined(service: Service, name: str = "n") -> Handle:
    held: list[Handle] = []
    assert hold(service, "A", name, lives=None, tell=held.append) is None
    return held[0]


def test_as_held_it_is_on_record_like_any_lease(service: Service) -> None:
    handle = joined(service)
    record = service.handles.require(handle.id)
    assert (record.state, record.names, record.waiter) == ("held", ("n",), None)
    assert record.leases[0].fence > 0
    with open(service.state.names_path(handle.id)) as file:
        assert file.read() == "n"
    assert release(service, whole(handle)) == ("n",)
    assert names(service) == ["a-1", "a-2", "n"]


def test_as_held_goes_again_if_the_caller_cannot_be_told_of_the_handle(service: Service) -> None:
    def tell(_: Handle) -> None:
        assert names(service) == ["a-1", "a-2", "n"]
        raise LeaseError("stdout is closed")

    with pytest.raises(LeaseError, match="stdout is closed"):
        hold(service, "A", "n", lives=None, tell=tell)
    assert names(service) == ["a-1", "a-2"]
    assert service.handles.active() == []


def test_of_a_process_that_died_before_the_announcement_nothing_is_left(
    service: Service,
) -> None:
    handle = join_held(service, "A", "n", lives=None)
    dead = identify(fork_that_waits := os.fork() or _wait())
    os.kill(fork_that_waits, 9)
    os.waitpid(fork_that_waits, 0)
    with service.state.transaction() as db:
        db.execute("UPDATE handle SET waiter = ? WHERE id = ?", (dead.encode(), handle.id))
    recover(service)
    assert names(service) == ["a-1", "a-2"]


def _wait() -> int:
    while True:
        os.sched_yield()


def test_one_that_another_holds_is_refused_and_nothing_is_on_record(
    service: Service,
) -> None:
    joined(service)
    with pytest.raises(NotAllowed, match="held by"):
        join_held(service, "A", "n", lives=None)
    assert len(service.handles.active()) == 1
    with pytest.raises(NotAllowed, match='in pool "B"'):
        join_held(service, "A", "b-1", lives=None)
    assert len(service.handles.active()) == 1


def test_again_it_is_the_same_handle_that_stays_on(
    service: Service, manual_clock: ManualClock
) -> None:
    lives = lifetime(service, ttl_seconds=60.0)
    assert join_again(service, "A", "n", lives=lives) is None
    handle = join_held(service, "A", "n", lives=lives)
    assert join_again(service, "A", "n", lives=lives) is None  # nobody knows of it yet
    announce(service, handle)
    manual_clock.advance(50)
    again = join_again(service, "A", "n", lives=lives, guard=ME)
    assert again is not None
    assert (again.handle.id, again.handle.guard) == (handle.id, ME)
    manual_clock.advance(50)
    release(service, whole(again.handle))
    assert names(service) == ["a-1", "a-2", "n"]
    manual_clock.advance(20)
    assert names(service) == ["a-1", "a-2"]


def test_what_is_given_back_just_then_is_not_free_before_it_is_ready(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = joined(service)
    holding = service.handles.holding

    def as_its_guard_has_ended(name: str, **how: Callable[[Handle], bool]) -> Handle | None:
        found = holding(name, **how)
        release(service, whole(handle))
        return found

    monkeypatch.setattr(service.handles, "holding", as_its_guard_has_ended)
    service.members.update(["n"], lambda member, _: member._replace(leaves=True))
    assert join_again(service, "A", "n", lives=None) is None
    assert names(service) == ["a-1", "a-2"]


def test_what_another_has_acquired_here_isnt_handed_to_who_joins(service: Service) -> None:
    handle = acquire(service, Request("A", name="a-1"), patience=Patience(wait_seconds=0))
    announce(service, handle)
    assert join_again(service, "A", "a-1", lives=None) is None
    with pytest.raises(NotAllowed, match="held by"):
        join_held(service, "A", "a-1", lives=None)
    assert service.handles.require(handle.id) == handle._replace(waiter=None)


def test_a_time_that_no_store_keeps_is_refused(service: Service) -> None:
    with pytest.raises(LeaseError, match="too short"):
        lifetime(service, ttl_seconds=0.5)


class TestStaying:
    """What the keeper does, for names on servers."""

    def kept(self) -> Stay:
        return Stay("", "", "n", "A", ME, 60.0)

    def join(self, service: Service) -> None:
        kept = self.kept()
        lives = lifetime(service, process=kept.process)
        assert lives is not None
        join(service, "A", "n", lives=lives._replace(ttl_seconds=kept.ttl_seconds))

    def test_renews_for_as_long_as_it_is_as_it_joined(
        self, service: Service, manual_clock: ManualClock
    ) -> None:
        self.join(service)
        for _ in range(3):
            manual_clock.advance(50)
            assert stay(service.members, self.kept())
        manual_clock.advance(61)
        assert not stay(service.members, self.kept())
        assert "n" not in names(service)

    def test_ends_with_the_process_and_meets_no_other(self, service: Service) -> None:
        self.join(service)
        other = self.kept()._replace(process=ME._replace(start_time=1))
        assert not end_stay(service.members, other)
        assert not stay(service.members, other)
        assert end_stay(service.members, self.kept())
        assert "n" not in names(service)

    def test_is_over_with_a_move(self, service: Service) -> None:
        self.join(service)
        memberships.move(service, ["n"], "B", when_free=False)
        assert not stay(service.members, self.kept())
        assert not end_stay(service.members, self.kept())
        assert "n" in names(service, "B")
