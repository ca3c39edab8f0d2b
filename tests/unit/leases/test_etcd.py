"""The use cases on pools in etcd, seen from the records: what is asked of a server, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience, Progress
from leasectl.backends.kinds import Backend, Context, claim_key_of
from leasectl.engines.facts import PoolSettings
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseLost
from leasectl.leases.acquire import acquire, announce, reacquire, turn
from leasectl.leases.recovery import due
from leasectl.leases.release import finish, release
from leasectl.leases.renew import renew
from leasectl.leases.request import check_request
from leasectl.leases.service import Service
from leasectl.leases.targets import targets_of_names
from leasectl.model import Handle, Request, whole
from leasectl.pools import admin
from leasectl.pools.definitions import parse_definitions
from leasectl.pools.properties import NO_CHANGE
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.poll import sleep_through
from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import revoke_claims
from tests.kit.recorded import watched
from tests.kit.relay import Relay
from tests.kit.waits import PATIENCE_SECONDS

ONE = Request("T")
# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once

NO_WAIT = Patience(wait_seconds=0)


@pytest.fixture
def service(
    between: Relay, prefix: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """On a pool of two, without a keeper."""
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    state = State.open(str(state_dir))
    url = f"{between.endpoint.replace('http', 'etcd')}{prefix}"
    service = Service(
        state, Context(url, caller=Caller("job/1", "host"), release_seconds=0.5, clock=Clock())
    )
    service.pools.create_pool("T", ["T--00", "T--01"])
    yield service
    state.close()


def served(service: Service) -> Handle:
    """As for a client of a server that asks with one key each time."""
    steps = turn(service, ONE, handle_id="T-served", patience=NO_WAIT)
    return sleep_through(steps, interrupts=(), now=service.clock.elapsed)


def acquired(service: Service, request: Request = ONE) -> Handle:
    handle = acquire(service, request, patience=NO_WAIT)
    announce(service, handle)
    return service.handles.require(handle.id)


def held(service: Service) -> dict[str, str | None]:
    (pool,) = service.pools.pools("T")
    return {each.name: each.claim_key for each in pool.resources if each.lease}


def test_nothing_is_asked_of_a_server_while_the_records_are_locked(
    service: Service, between: Relay
) -> None:
    asked: list[bool] = []

    def note(_number: int, path: str) -> None:
        if path != "/v3/lease/revoke":  # for which nobody waits
            asked.append(service.state.db.in_transaction)

    between.listen(before=note)
    handle = acquired(service)
    renew(service, whole(handle))
    again = reacquire(service, handle.id, patience=NO_WAIT)
    announce(service, again)
    admin.overview(service)
    admin.add_with(service, "T", 1, NO_CHANGE)
    text = "resources: [{type: N, state: free, names: [n1]}]"
    admin.apply(service, parse_definitions(text, "list").pools)
    targets_of_names(service, ["T--00"])
    release(service, whole(again))
    finish(service, acquired(service))
    assert len(asked) > 20
    assert not any(asked)


def test_a_loss_that_is_noted_as_a_release_begins_is_given_up_as_well(
    service: Service, etcd: EtcdServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = acquired(service)
    revoke_claims(etcd.endpoints[0], prefix, "T")
    backend_of = service.backend_of

    def as_the_keeper_renews(found: Handle) -> Backend:
        monkeypatch.setattr(service, "backend_of", backend_of)
        with pytest.raises(LeaseLost):
            renew(service, whole(handle))
        return backend_of(found)

    monkeypatch.setattr(service, "backend_of", as_the_keeper_renews)
    assert release(service, whole(handle)) == ()
    # Else the pool would keep it for a ttl.
    assert len(acquire(service, Request("T", count=2), patience=NO_WAIT).names) == 2


def test_what_is_late_for_a_handle_does_not_free_what_another_of_its_id_holds(
    service: Service,
) -> None:
    """A keeper may have tried all the time to undo what wasn't answered."""
    before = served(service)
    finish(service, before)
    now = served(service)
    assert release(service, whole(before, by="delay")) == ()
    backend = service.backend_of(before)
    assert list(backend.release(claim_key_of(before), (), by="delay")) == []
    assert held(service) == {now.names[0]: claim_key_of(now)}
    assert service.handles.require("T-served").names == now.names


@pytest.mark.parametrize("lost", range(1, 3))
def test_what_could_not_be_undone_is_left_to_the_keeper(
    service: Service, between: Relay, lost: int
) -> None:
    """Of three requests the first only looks, and the last claims; no answer comes from one on."""

    def lose(number: int, path: str) -> bool:
        if number > first + lost:
            between.cut()
        return number > first + lost

    first = len(between.paths)
    between.listen(after=lose)
    with pytest.raises(BackendUnreachable):
        acquire(service, Request("T"), patience=NO_WAIT)
    (left,) = watched(service.state)
    assert left.release_at is not None
    between.listen()
    between.mend()
    for target in due(service):
        release(service, target)
    assert held(service) == {}
    assert service.handles.active() == []


def test_a_place_that_nobody_here_gave_up_was_lost_and_not_released(service: Service) -> None:
    acquired(service, Request("T", count=2))
    waiting: list[Handle] = []

    def take_the_place_away(progress: Progress) -> None:
        (handle,) = [each for each in service.handles.active() if each.state == "acquiring"]
        waiting.append(handle)
        service.backend_of(handle).withdraw(
            claim_key_of(handle)
        )  # as etcd does with an expired lease

    patience = Patience(wait_seconds=PATIENCE_SECONDS, report=take_the_place_away)
    with pytest.raises(BackendUnreachable, match="ended the waiting request; try again"):
        acquire(service, ONE, patience=patience)
    assert service.handles.load(waiting[0].id) is None


@pytest.mark.parametrize(("pools", "count"), [(1, 60), (2, 28), (8, 5), (16, 1)])
def test_as_much_as_is_allowed_can_be_claimed_in_one_transaction(
    service: Service, pools: int, count: int
) -> None:
    types = [f"U{number}" for number in range(pools)]
    for each in types:
        names = [f"{each}--{number}" for number in range(count)]
        # A pace is one more thing that a claim changes.
        service.pools.create_pool(each, names, settings=PoolSettings(pace_seconds=60.0))
    patient = service.context._replace(release_seconds=PATIENCE_SECONDS)
    service = Service(service.state, patient)
    first, *others = types
    wanted = Request(first, count, other_types=tuple(others), needs_all=bool(others))
    handle = acquire(service, wanted, patience=NO_WAIT)
    assert len(handle.leases) == pools * count
    check_request(wanted, None, service.context)
    with pytest.raises(InvalidRequest, match="etcd grants at most"):
        check_request(wanted._replace(count=count + 1), None, service.context)
