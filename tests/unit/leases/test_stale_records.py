"""Records of leases that ran out unnoticed, on a server with pools: a release passes them over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.errors import NotAllowed
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.leases.targets import targets_of_names, targets_of_scope_test
from leasectl.model import Handle, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from tests.kit.etcd.server import EtcdServer
from tests.kit.waits import eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once

MINE, OTHERS = "job/1", "job/2"


class Ground:
    """Two state directories on a pool of one, without keepers.

    Args:
        etcd: The server.
        prefix: Where the pool is.
        folder: Where the state directories are made.
    """

    def __init__(self, etcd: EtcdServer, prefix: str, folder: Path) -> None:
        self._endpoint, self._prefix = etcd.endpoints[0], prefix
        self.shared = str(folder)
        self.here, self.elsewhere = (State.open(str(folder / each)) for each in ("here", "there"))
        self.by(MINE).pools.create_pool("T", ["T--00"])

    def by(self, owner: str, state: State | None = None) -> Service:
        """What a job does, in the first state directory if none is given."""
        url = f"{self._endpoint.replace('http', 'etcd')}{self._prefix}"
        return Service(state or self.here, Context(url, caller=Caller(owner, "host", self.shared)))

    def acquire(self, service: Service, *, ttl_seconds: float = 60) -> Handle:
        request = Request("T", scope="test", ttl_seconds=ttl_seconds, name="T--00")
        handle = acquire(service, request, patience=Patience(wait_seconds=0))
        announce(service, handle)
        return service.handles.require(handle.id)

    def leave_stale(self, owner: str) -> Handle:
        """Leave the record of a lease that ran out unnoticed."""
        handle = self.acquire(self.by(owner), ttl_seconds=2)
        eventually(lambda: self.is_free, what="it has run out")
        # Whoever is granted it next may be told of the loss; here that is another state directory.
        between = self.by(OTHERS, self.elsewhere)
        release(between, whole(self.acquire(between)))
        return handle

    @property
    def is_free(self) -> bool:
        (pool,) = self.by(MINE).pools.pools("T")
        return pool.held == 0


@pytest.fixture
def ground(
    etcd: EtcdServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    ground = Ground(etcd, prefix, tmp_path)
    yield ground
    ground.here.close()
    ground.elsewhere.close()


def have_ids_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have handles that are made later come later."""
    ids = iter(f"T-{number:06d}" for number in range(9))
    monkeypatch.setattr("leasectl.leases.acquire.new_id", lambda _: next(ids))


@pytest.mark.parametrize(
    ("scope", "stale", "is_elsewhere"),
    [(False, MINE, False), (True, OTHERS, False), (False, OTHERS, True), (True, MINE, True)],
)
def test_the_lease_that_the_server_has_is_released(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, scope: bool, stale: str, is_elsewhere: bool
) -> None:
    have_ids_in_this_order(monkeypatch)
    ground.leave_stale(stale)
    good = ground.acquire(ground.by(MINE, ground.elsewhere if is_elsewhere else None))
    service = ground.by(MINE)
    targets = (
        targets_of_scope_test(service).targets if scope else targets_of_names(service, ["T--00"])
    )
    if not is_elsewhere:
        assert [each.handle_id for each in targets] == [good.id]
    assert [name for each in targets for name in release(service, each)] == ["T--00"]
    assert ground.is_free


def test_what_another_job_holds_by_now_is_refused(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_ids_in_this_order(monkeypatch)
    ground.leave_stale(MINE)
    ground.acquire(ground.by(OTHERS))
    with pytest.raises(NotAllowed, match=r'"T--00" is held by job/2/'):
        targets_of_names(ground.by(MINE), ["T--00"])
    assert not ground.is_free


def test_what_ran_out_and_is_free_is_no_error(ground: Ground) -> None:
    ground.leave_stale(OTHERS)
    assert targets_of_names(ground.by(MINE), ["T--00"]) == []


@pytest.mark.parametrize("stale", [MINE, OTHERS])
def test_a_grant_drops_the_record_of_an_earlier_lease(ground: Ground, stale: str) -> None:
    """So nothing that asks for who holds a name (`use`, `serve`) finds the earlier one."""
    earlier = ground.leave_stale(stale)
    service = ground.by(MINE)
    later = ground.acquire(service)
    assert [each.id for each in service.handles.holders("T--00", prefer=lambda _: True)] == [
        later.id
    ]
    left = service.handles.require(earlier.id)
    assert (left.state, left.lost) == ("released", True)
