"""What a process remembers of an etcd that is restored from an older copy, or corrected by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.engines.cluster.changes import touched
from leasectl.engines.cluster.objects import Change
from leasectl.engines.etcd.encoding import find_astray, mend_astray
from leasectl.engines.etcd.opening import open_etcd
from leasectl.engines.etcd.requests import KeyValue, delete, put, read
from leasectl.errors import LeaseError
from leasectl.model import Request
from tests.kit.etcd.access import CLOCK, NAMES, Access
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.waits import eventually, result_of

TTL_SECONDS = 600
REQUEST = Request("T", ttl_seconds=TTL_SECONDS)


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """A member that may be restored."""
    with etcd_server() as server:
        yield server


@pytest.fixture
def before(own_etcd: EtcdServer, prefix: str) -> Access:
    """A process that was there before the restore, and has had the only resource of a pool."""
    access = Access(own_etcd.endpoints, prefix, state_id="before")
    access.pools.create_pool("T", ["x"])
    access.acquire("first", REQUEST)
    access.engine.free("first")
    return access


def at(access: Access, key: str) -> KeyValue | None:
    return access.gateway.read(read(access.keys.prefix + key)).answers[0].first


def raise_revision(access: Access, to: int) -> None:
    while access.gateway.read().revision < to:
        access.gateway.commit((), [put(f"{access.keys.prefix}other", "")])


class TestRestored:
    def test_another_write_of_the_same_revision_is_not_taken_for_what_was_seen(
        self, own_etcd: EtcdServer, before: Access
    ) -> None:
        copy = own_etcd.keep_copy()
        before.acquire("second", REQUEST)
        before.engine.free("second")
        seen = before.context.pool("T").resources["resource/x"]
        own_etcd.restore(copy)
        after = Access(own_etcd.endpoints, before.keys.prefix, state_id="after")
        after.context.pool("T")
        raise_revision(after, seen.id.version - 1)
        after.acquire("other", REQUEST)
        claimed = at(after, "in/T/resource/x")
        assert claimed is not None and claimed.mod_revision == seen.id.version
        assert not before.context.objects.write(Change(seen, touched(seen))).is_done
        there = before.context.resource("x")
        assert there is not None and there.claim is not None
        with pytest.raises(LeaseError):
            before.acquire("third", REQUEST, wait=0)
        assert after.engine.renew("other") == ("x",)

    def test_a_process_of_before_is_granted_what_is_free(
        self, own_etcd: EtcdServer, before: Access
    ) -> None:
        copy = own_etcd.keep_copy()
        raise_revision(before, before.gateway.read().revision + 50)
        before.acquire("second", REQUEST)
        before.engine.free("second")
        own_etcd.restore(copy)
        pending = before.begin("third", REQUEST)
        assert [each.name for each in result_of(pending)] == ["x"]


def test_the_largest_claim_is_kept_no_longer_when_it_is_ended_by_force(store: Access) -> None:
    names = [f"y-{number}" for number in range(60)]
    store.pools.create_pool("U", names)
    store.acquire("holder", Request("U", count=len(names), ttl_seconds=TTL_SECONDS))

    def seconds_left() -> int:
        lives = {each.claim.life for each in store.context.claimed("holder") if each.claim}
        return max(store.gateway.seconds_left(int(life, 16)) for life in lives)

    eventually(lambda: seconds_left() < TTL_SECONDS, what="some of its time is over")
    left = seconds_left()
    assert store.pools.end_early("holder", names, guard=None, reason="r")
    assert seconds_left() <= left


def test_pointers_are_corrected_also_of_a_name_in_no_pool(store: Access) -> None:
    opened = open_etcd(store.gateway, state_id="host", clock=CLOCK)
    out, member = NAMES[:2]
    opened.members.update([out], lambda now, _: now._replace(pool=None, expected="T"))
    assert find_astray(store.gateway) == []
    keys = [f"{store.keys.prefix}at/{each}" for each in (out, member)]
    store.gateway.commit((), [put(keys[0], "T"), delete(keys[1])])
    assert mend_astray(store.gateway) == keys
    values = [kv and kv.value for kv in (at(store, f"at/{each}") for each in (out, member))]
    assert values == ["", "T"]
