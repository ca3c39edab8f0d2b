"""leasectl.leases.renew: what a heartbeat finds lost, who took it, and which ttl can be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Context, claim_key_of
from leasectl.backends.servers import Renew, RenewalTerms
from leasectl.engines.notes import Note
from leasectl.errors import InvalidRequest, LeaseLost, NotAllowed
from leasectl.leases.acquire import acquire, announce, reacquire
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.state import keeper_process
from leasectl.state.handles import renews_itself
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_server import URL, Server, change_kind
from tests.kit.waits import wait_readable

NO_WAIT = Patience(wait_seconds=0)
REASON = "released by force by ops/host: its machine is gone"
DEAD = this_process()._replace(start_time=1)


@pytest.fixture
def service(server: Server, desk: Desk) -> Service:
    return desk.as_caller(desk.caller, URL)


def acquired(service: Service, count: int = 1) -> Handle:
    handle = acquire(service, Request("T", count), patience=NO_WAIT)
    announce(service, handle)
    return service.handles.require(handle.id)


def take(server: Server, handle: Handle, reason: str = REASON) -> None:
    """End by force, from another state directory, what a handle holds."""
    ended = server.pools.end_early(claim_key_of(handle), handle.names, guard=None, reason=reason)
    assert ended == handle.names


class TestWhoTookIt:
    """On a made-up server, which knows that as long as it keeps what was taken."""

    @pytest.mark.parametrize("ttl", [None, 20.0], ids=["same ttl", "another ttl"])
    def test_is_told_and_remembered(
        self, server: Server, service: Service, ttl: float | None
    ) -> None:
        handle = acquired(service, 3)
        take(server, handle)
        with pytest.raises(LeaseLost, match=rf"has lost its lease \({REASON}\); get a new one"):
            renew(service, whole(handle), ttl_seconds=ttl)
        assert service.handles.require(handle.id).lost_reason == REASON

    def test_is_told_also_to_who_asks_for_another_ttl_after_it_was_noticed(
        self, server: Server, service: Service
    ) -> None:
        handle = acquired(service)
        take(server, handle)
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(handle), [])  # as a thread of the keeper does
        assert service.handles.require(handle.id).lost_reason == ""
        with pytest.raises(LeaseLost, match=REASON):
            renew(service, whole(handle), ttl_seconds=20.0)

    def test_is_not_who_took_anothers(self, server: Server, service: Service) -> None:
        other, handle = acquired(service), acquired(service)
        take(server, other)
        # As somebody does who got at the file of its names.
        assert list(server.release(claim_key_of(handle), handle.names)) == [*handle.names]
        with pytest.raises(LeaseLost, match="has lost its lease; get a new one"):
            renew(service, whole(handle))

    def test_is_not_asked_for_an_acquisition_that_is_over(
        self, server: Server, service: Service, asked: list[str]
    ) -> None:
        first = acquired(service)
        again = reacquire(service, first.id, patience=NO_WAIT)
        announce(service, again)
        take(server, again)
        with pytest.raises(LeaseLost):
            note_renewal(service, whole(again), [])
        asked.clear()
        with pytest.raises(LeaseLost, match="has lost its lease; get a new one"):
            renew(service, whole(first))
        assert asked == []

    def test_is_on_record_where_the_record_is_told_at_once(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire()
        release_by_force(desk.service, handle.names, reason="stuck")
        with pytest.raises(LeaseLost, match=r"\(released by force by job/1: stuck\)"):
            renew(desk.service, whole(handle))

    @pytest.fixture
    def asked(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """Of which pools the server was asked."""
        asked: list[str] = []
        pools = type(server.pools)
        look = pools.pools

        def noted(self: object, pool_type: str, **more: object) -> object:
            asked.append(pool_type)
            return look(self, pool_type, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(pools, "pools", noted)
        yield asked


class TestAnotherTtl:
    def test_is_had_and_remembered_as_asked_for(self, service: Service, desk: Desk) -> None:
        handle = acquired(service)
        assert not handle.explicit_ttl
        desk.time.advance(3)
        renewed = renew(service, whole(handle), ttl_seconds=20.0)
        assert (renewed.request.ttl_seconds, renewed.explicit_ttl) == (20.0, True)
        assert not renews_itself(renewed)
        assert {each.renew_time for each in renewed.leases} == {desk.time.clock.wall()}
        desk.time.advance(19)
        assert renew(service, whole(handle)).names == handle.names

    def test_has_the_keeper_renew_by_that(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = acquired(service)
        told: list[float | None] = []

        def wake(_state: object) -> None:
            told.append(service.handles.require(handle.id).request.ttl_seconds)

        monkeypatch.setattr(keeper_process, "wake", wake)
        renew(service, whole(handle), ttl_seconds=20.0)
        assert told == [20.0]
        renew(service, whole(handle), ttl_seconds=5.0)
        assert told == [20.0, 5.0, 5.0]  # before it is asked for, too

    def test_of_less_than_any_store_keeps_is_refused(self, service: Service) -> None:
        handle = acquired(service)
        with pytest.raises(InvalidRequest, match="at least 2s"):
            renew(service, whole(handle), ttl_seconds=1.9)
        assert service.handles.require(handle.id) == handle
        assert renew(service, whole(handle), ttl_seconds=2.0).request.ttl_seconds == 2.0

    def test_for_what_does_not_expire_is_refused(self, desk: Desk) -> None:
        desk.pool(1)
        handle = desk.acquire()
        with pytest.raises(
            InvalidRequest, match=f"{handle.id} has no ttl: .* give --ttl to acquire"
        ):
            renew(desk.service, whole(handle), ttl_seconds=20.0)
        assert desk.record(handle) == handle

    def test_is_not_for_the_command_of_a_run_which_counts_on_the_one_that_it_has(
        self, service: Service
    ) -> None:
        handle = acquired(service)
        announce(service, handle, runner=this_process())
        with pytest.raises(InvalidRequest, match=f"leasectl run .process {this_process().pid}"):
            renew(service, whole(handle), ttl_seconds=20.0)
        announce(service, handle, runner=DEAD)
        assert renew(service, whole(handle), ttl_seconds=20.0).request.ttl_seconds == 20.0

    def test_for_an_acquisition_that_is_over_is_refused(self, service: Service) -> None:
        first = acquired(service)
        again = reacquire(service, first.id, patience=NO_WAIT)
        announce(service, again)
        with pytest.raises(NotAllowed, match="holds nothing to renew"):
            renew(service, whole(first), ttl_seconds=20.0)
        assert service.handles.require(first.id).request.ttl_seconds == 7.0


def test_a_server_without_pools_is_not_asked_who_took_it(
    server: Server, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = acquired(service)
    take(server, handle)
    change_kind(monkeypatch, has_pools=False)
    with pytest.raises(LeaseLost, match="has lost its lease; get a new one"):
        renew(service, whole(handle))


def test_each_comes_with_what_is_noted_at_its_own_claims(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_renewals(context: Context, terms: RenewalTerms) -> Renew:
        def renew(claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
            terms.noted([Note("T", name, 1, f"of {name}") for name in names])
            return tuple(names)

        return renew

    monkeypatch.setattr(MadeUpBackend, "open_renewals", open_renewals)
    service = desk.as_caller(desk.caller, URL)
    came: dict[ReleaseTarget, Renewed] = {}
    with contextlib.closing(RenewalThreads(desk.state, clock=desk.time.clock)) as threads:
        for _ in range(2):
            threads.send(acquire(service, Request("T"), patience=Patience(0)))
        while len(came) < 2:
            assert threads.fd is not None
            wait_readable(threads.fd)
            came.update((target, outcome.result()) for target, outcome in threads.outcomes())
    assert sorted(came.values()) == [
        Renewed((name,), (Note("T", name, 1, f"of {name}"),)) for name in ("T--00", "T--01")
    ]
