"""What a process remembers of a pool, and what comes of it when that has changed meanwhile."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.records import MOST_AT_ONCE
from leasectl.errors import InvalidRequest, NotFound
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, Access, begin_listening, keys_left
from tests.kit.relay import Relay
from tests.kit.waits import eventually, result_of

ONE = Request("T")
TXN, GRANT = "/v3/kv/txn", "/v3/lease/grant"


@pytest.fixture
def again(between: Relay, store: Access, prefix: str) -> Access:
    """A process that has had a lease of the pool before."""
    access = Access([between.endpoint], prefix)
    access.acquire("before", ONE)
    access.engine.free("before")
    return access


def asked(between: Relay, access: Access, request: Request) -> list[str]:
    """What it takes to be granted that."""
    before = len(between.paths)
    access.acquire("me", request, wait=0)
    return between.paths[before:]


class TestWhatIsRemembered:
    def test_of_a_pool_that_was_seen_it_need_not_be_asked_whether_it_can_meet_a_request(
        self, between: Relay, again: Access
    ) -> None:
        assert asked(between, again, Request("T", count=4)) == [GRANT, TXN, TXN]

    def test_more_than_was_there_is_asked_for(self, store: Access, again: Access) -> None:
        with pytest.raises(InvalidRequest, match="4"):
            again.acquire("me", Request("T", count=5), wait=0)
        store.pools.add_resources("T", ["T--4"])
        assert len(again.acquire("me", Request("T", count=5), wait=0)) == 5

    def test_what_is_no_more_there_is_refused_and_leaves_nothing(
        self, store: Access, again: Access
    ) -> None:
        store.pools.remove_resources("T", NAMES[2:], force=False)
        with pytest.raises(InvalidRequest):
            again.acquire("me", Request("T", count=3), wait=0)
        assert keys_left(store) == []
        assert len(again.acquire("me", Request("T", count=2), wait=0)) == 2

    def test_a_pool_that_was_changed_is_looked_at_once_more(
        self, store: Access, between: Relay, again: Access
    ) -> None:
        store.pools.add_resources("T", ["T--4"])
        assert asked(between, again, ONE) == [GRANT, TXN, TXN, TXN, TXN]

    def test_so_is_one_that_was_deleted_and_made_anew(self, store: Access, again: Access) -> None:
        store.pools.delete_pool("T", force=False)
        with pytest.raises(NotFound):
            again.acquire("me", ONE, wait=0)
        store.pools.create_pool("T", NAMES[:1])
        with pytest.raises(InvalidRequest):
            again.acquire("me", Request("T", count=2), wait=0)
        assert len(again.acquire("me", ONE, wait=0)) == 1

    def test_what_is_too_much_for_one_transaction_is_refused_all_the_same(
        self, store: Access, again: Access
    ) -> None:
        store.pools.add_resources("T", [f"T--more-{n}" for n in range(MOST_AT_ONCE)])
        again.acquire("me", ONE, wait=0)
        with pytest.raises(InvalidRequest, match=f"at most {MOST_AT_ONCE} at once"):
            again.acquire("me", Request("T", count=MOST_AT_ONCE + 1), wait=0)


class TestWhatIsSeenAtOnce:
    def test_who_comes_to_an_empty_queue_claims_with_the_next_request(
        self, between: Relay, again: Access
    ) -> None:
        assert asked(between, again, ONE) == [GRANT, TXN, TXN]

    def test_who_is_behind_another_waits_with_no_further_request(
        self, store: Access, between: Relay, again: Access
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        first = store.begin("first", ONE)
        eventually(lambda: store.queue() == ["first"])
        before = len(between.paths)
        pending = begin_listening(again, between, ONE)
        assert between.paths[before:][:3] == [GRANT, TXN, "/v3/watch"]
        store.engine.free("holder")
        assert result_of(first)[0].ticket < result_of(pending)[0].ticket
