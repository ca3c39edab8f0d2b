"""A holder's watch, against a real server: who is told of what, and how soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.engines.etcd.waiting.claim_watch import EtcdClaimWatch
from leasectl.model import Request
from leasectl.system.poll import is_readable
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import etcdctl

TTL = 600.0  # so long that nothing here comes of a renewal


@pytest.fixture
def revision(store: Access) -> int:
    """At which "holder" was granted two of the pool."""
    leases = store.acquire("holder", Request("T", count=2, ttl_seconds=TTL))
    return leases[0].fence // 128


@pytest.fixture
def watch(store: Access, revision: int) -> Iterator[EtcdClaimWatch]:
    watch = EtcdClaimWatch(store.gateway, store.keys, "holder", revision)
    yield watch
    watch.close()


def take_by_force(store: Access, name: str) -> None:
    store.pools.end_early("holder", [name], guard=None, reason="by an admin: stuck")


def is_woken(watch: EtcdClaimWatch, seconds: float = 5.0) -> bool:
    return is_readable(watch.fd, seconds)


def test_it_tells_of_each_that_is_taken_by_force_and_why(
    store: Access, watch: EtcdClaimWatch
) -> None:
    for name in NAMES[:2]:
        take_by_force(store, name)
        assert is_woken(watch)
        assert watch.take().reason == "by an admin: stuck"


def test_it_tells_of_what_was_taken_before_it_began(store: Access, revision: int) -> None:
    take_by_force(store, NAMES[0])
    watch = EtcdClaimWatch(store.gateway, store.keys, "holder", revision)
    assert is_woken(watch)
    watch.close()


def test_what_others_hold_is_no_news(store: Access, watch: EtcdClaimWatch) -> None:
    store.acquire("other", Request("T", ttl_seconds=TTL))
    store.engine.renew("holder")
    store.engine.free("other")
    assert not is_woken(watch, 0.3)
    store.pools.delete_pool("T", force=True)
    assert is_woken(watch)
    assert watch.take().reason == ""


def test_where_etcd_has_forgotten_the_past_it_goes_on_from_now(
    etcd: EtcdServer, store: Access, revision: int
) -> None:
    for _ in range(3):
        store.engine.renew("holder")
    now = store.gateway.read().revision
    etcdctl(etcd.endpoints[0], "compaction", str(now))
    watch = EtcdClaimWatch(store.gateway, store.keys, "holder", revision)
    assert is_woken(watch)  # to have a look
    assert watch.take().reason == ""
    assert not is_woken(watch, 0.3)
    take_by_force(store, NAMES[1])
    assert is_woken(watch)
    assert watch.take().reason == "by an admin: stuck"
    watch.close()
