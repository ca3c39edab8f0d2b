"""An etcd that has reached its quota: it writes nothing until somebody has made room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.relay import relay


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        yield server


@pytest.fixture
def store(server: EtcdServer, prefix: str) -> Iterator[Access]:
    """Access to a pool of which one is held, and etcd has no space from then on."""
    store = Access(server.endpoints, prefix)
    store.pools.create_pool("T", NAMES)
    store.acquire("holder", Request("T", ttl_seconds=60))
    server.alarm(on=True)
    yield store
    server.alarm(on=False)


def test_a_renewal_is_good_and_dated_again_when_there_is_space(
    server: EtcdServer, store: Access
) -> None:
    (lease,) = [each.lease for each in store.pool().resources if each.lease]
    assert store.engine.renew("holder") == (NAMES[0],)
    server.alarm(on=False)
    assert store.engine.renew("holder") == (NAMES[0],)
    (dated,) = [each.lease for each in store.pool().resources if each.lease]
    assert dated.renew_time is not None and lease.renew_time is not None
    assert dated.renew_time > lease.renew_time


def test_nobody_is_granted_anything_and_all_are_told_what_to_do(store: Access) -> None:
    with pytest.raises(BackendUnreachable, match=r"space exceeded.*alarm disarm"):
        store.acquire("other", Request("T"))
    with pytest.raises(BackendUnreachable, match=r"space exceeded.*alarm disarm"):
        store.engine.free("holder")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_claim_that_has_gone_is_lost_all_the_same(
    server: EtcdServer, store: Access, prefix: str, number: int
) -> None:
    """Before any request of the renewal: the last looks, as there is no space for a date."""
    with relay(server.endpoints[0]) as between:

        def revoke(at: int, _path: str) -> None:
            if at == number:
                store.end("holder")

        between.listen(before=revoke)
        assert Access([between.endpoint], prefix).engine.renew("holder") == ()
