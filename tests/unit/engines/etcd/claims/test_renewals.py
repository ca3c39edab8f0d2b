"""Renewals in etcd: how many requests they take, and what they find; against a real server."""

from __future__ import annotations

import time
from typing import Callable

import pytest

from leasectl.engines.etcd.claims import renewals
from leasectl.engines.etcd.gateway.requests import read_all
from leasectl.engines.etcd.key_values import number_in
from leasectl.engines.notes import NoteChange
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, SHORT, Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay
from tests.kit.waits import eventually

TXN, KEEP_ALIVE = "/v3/kv/txn", "/v3/lease/keepalive"
TWO = Request("T", count=2, ttl_seconds=60)


@pytest.fixture
def renewer(between: Relay, prefix: str) -> Access:
    """Access of a process that only renews, and whose requests are counted."""
    return Access([between.endpoint], prefix)


def requests_of(between: Relay, work: Callable[[], object]) -> list[str]:
    """The paths of what some work asks."""
    before = len(between.paths)
    work()
    return between.paths[before:]


def dates(store: Access) -> list[float]:
    """When the claims in the pool were renewed last, in the order of the ids of their leases."""
    (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
    return [number_in(kv) for kv in found.items]


class TestRequests:
    def test_a_renewal_is_a_keep_alive_and_a_date_once_the_claim_is_known(
        self, store: Access, renewer: Access, between: Relay
    ) -> None:
        store.acquire("me", TWO)
        first = requests_of(between, lambda: renewer.engine.renew("me"))
        assert first == [TXN, KEEP_ALIVE, TXN]
        for _ in range(3):
            again = requests_of(between, lambda: renewer.engine.renew("me"))
            assert again == [KEEP_ALIVE, TXN]

    def test_what_is_lost_by_force_is_found_by_the_next_one_without_a_request_more(
        self, store: Access, renewer: Access, between: Relay
    ) -> None:
        store.acquire("me", TWO)
        assert renewer.engine.renew("me") == tuple(NAMES[:2])
        store.pools.remove_resources("T", NAMES[:1], force=True)
        found: list[tuple[str, ...]] = []
        paths = requests_of(between, lambda: found.append(renewer.engine.renew("me")))
        assert (found, paths) == ([(NAMES[1],)], [KEEP_ALIVE, TXN])
        store.pools.remove_resources("T", NAMES[1:2], force=True)
        assert renewer.engine.renew("me") == ()

    def test_of_several_claims_each_takes_two(
        self, store: Access, renewer: Access, between: Relay
    ) -> None:
        for _ in range(2):
            store.acquire("me", TWO)
        assert renewer.engine.renew("me") == tuple(NAMES)
        paths = requests_of(between, lambda: renewer.engine.renew("me"))
        assert paths == [KEEP_ALIVE, TXN] * 2

    def test_who_holds_nothing_is_told_so_by_one(self, store: Access, renewer: Access) -> None:
        assert renewer.engine.renew("me") == ()

    def test_claims_that_others_were_renewed_since_are_looked_up_again(
        self, store: Access, renewer: Access, between: Relay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(renewals, "_MOST_KNOWN", 2)
        for claim_key in ("a", "b", "c"):
            store.acquire(claim_key, Request("T", ttl_seconds=60))
            renewer.engine.renew(claim_key)
        assert len(requests_of(between, lambda: renewer.engine.renew("c"))) == 2
        assert len(requests_of(between, lambda: renewer.engine.renew("a"))) == 3


class TestWhatIsKnown:
    """Which claims a claim key has is a memory, and may be wrong."""

    def test_a_claim_that_has_come_since_is_renewed_with_the_others(
        self, store: Access, renewer: Access
    ) -> None:
        store.acquire("me", TWO)
        assert renewer.engine.renew("me") == tuple(NAMES[:2])
        store.acquire("me", TWO)
        since = time.time()
        assert renewer.engine.renew("me") == tuple(NAMES)
        assert min(dates(store)) >= since

    def test_a_claim_that_has_gone_does_not_keep_another_from_being_renewed(
        self, store: Access, renewer: Access
    ) -> None:
        for _ in range(2):
            store.acquire("me", TWO)
        renewer.engine.renew("me")
        store.engine.free("me", NAMES[:2])
        for _ in range(2):
            assert renewer.engine.renew("me") == tuple(NAMES[2:])

    def test_what_has_come_after_everything_was_gone_is_found(
        self, store: Access, renewer: Access
    ) -> None:
        store.acquire("me", TWO)
        renewer.engine.renew("me")
        store.engine.free("me")
        store.acquire("me", TWO)
        assert renewer.engine.renew("me") == tuple(NAMES[2:])
        store.engine.free("me")
        assert renewer.engine.renew("me") == ()
        store.acquire("me", TWO)
        assert renewer.engine.renew("me") == tuple(NAMES[:2])

    def test_the_claim_of_another_state_directory_is_renewed_by_its_claim_key(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("handle/1", TWO)
        elsewhere = Access([between.endpoint], prefix, state_id="other-host")
        for number in (3, 2):
            paths = requests_of(
                between, lambda: elsewhere.engine.renew(f"@{store.keys.with_state_id('handle/1')}")
            )
            assert len(paths) == number
        assert len(dates(store)) == 1


class TestGoneMeanwhile:
    @pytest.mark.parametrize("number", [1, 2])
    def test_a_claim_that_ends_in_the_middle_of_its_renewal_is_not_renewed(
        self, store: Access, renewer: Access, between: Relay, number: int
    ) -> None:
        """Before the keep-alive, or between that and the date."""
        ttl = 2 * SHORT  # in which it is also looked at
        store.acquire("me", Request("T", name=NAMES[0], ttl_seconds=ttl))
        renewer.engine.renew("me")
        (etcd_lease_id,) = store.etcd_lease_ids()
        dated = dates(store)
        fatal = len(between.paths) + number

        def revoke(at: int, _path: str) -> None:
            if at == fatal:
                store.gateway.revoke(etcd_lease_id)

        between.listen(before=revoke)
        assert renewer.engine.renew("me") == ()
        assert dates(store) == dated
        assert store.held() == [NAMES[0]]  # until the date before is a ttl ago
        (lease,) = store.acquire("next", Request("T", name=NAMES[0]))
        assert lease.acquire_time >= dated[0] + ttl

    def test_a_claim_without_a_ttl_outlasts_its_etcd_lease(
        self, store: Access, renewer: Access
    ) -> None:
        store.acquire("me", Request("T", count=2))
        for etcd_lease_id in store.etcd_lease_ids():
            store.gateway.revoke(etcd_lease_id)
        dated = dates(store)
        for _ in range(2):
            assert renewer.engine.renew("me") == tuple(NAMES[:2])
        assert dates(store) > dated
        store.engine.free("me")
        assert renewer.engine.renew("me") == ()

    def test_what_has_run_out_in_time_is_freed_by_its_own_renewal(
        self, store: Access, renewer: Access
    ) -> None:
        store.acquire("me", Request("T", ttl_seconds=SHORT))
        renewer.engine.renew("me")
        eventually(lambda: store.held() == [], what="it has run out")
        assert renewer.engine.renew("me") == ()
        assert renewer.lost == [("me", (NAMES[0],))]


class TestDeadlines:
    def test_a_claim_is_dated_from_before_its_keep_alive_was_sent(
        self, store: Access, renewer: Access, between: Relay
    ) -> None:
        store.acquire("me", TWO)
        renewer.engine.renew("me")
        sent: list[float] = []

        def hold_back(_number: int, path: str) -> None:
            if path == KEEP_ALIVE:
                sent.append(time.time())
                time.sleep(0.2)

        between.listen(before=hold_back)
        since = time.time()
        renewer.engine.renew("me")
        (dated,) = dates(store)
        assert since <= dated <= sent[0]

    @pytest.mark.parametrize("number", [1, 2])
    def test_whichever_answer_is_lost_the_claim_is_renewed(
        self, store: Access, renewer: Access, between: Relay, number: int
    ) -> None:
        store.acquire("me", TWO)
        renewer.engine.renew("me")
        since, lost = time.time(), len(between.paths) + number
        between.listen(after=lambda at, _path: at == lost)
        assert renewer.engine.renew("me") == tuple(NAMES[:2])
        assert len(between.paths) == lost + 3 - number
        assert dates(store)[0] >= since
        assert renewer.lost == []


def test_who_renews_follows_a_claim_that_another_has_given_another_ttl(
    etcd: EtcdServer, store: Access, prefix: str
) -> None:
    other = Access(etcd.endpoints, prefix)
    store.acquire("me", Request("T", count=2, ttl_seconds=60))
    assert store.engine.renew("me") == tuple(NAMES[:2])  # by what it knows from now on
    assert other.engine.renew("me", ttl_seconds=300) == tuple(NAMES[:2])
    assert store.engine.renew("me") == tuple(NAMES[:2])
    (claim_id,) = store.etcd_lease_ids()
    assert 290 < store.gateway.time_left(claim_id) <= 300
    assert (store.lost, other.lost) == ([], [])
    assert store.engine.free("me") == tuple(NAMES[:2])
    assert keys_left(store) == []


def test_what_is_noted_while_a_claim_is_given_another_ttl_is_noted_at_it(
    store: Access, renewer: Access, between: Relay
) -> None:
    taken_off, kept, noted_late = store.acquire("me", Request("T", count=3, ttl_seconds=60))
    notes = store.backend.notes
    marks = [NoteChange("T", each.name, each.fence, None, "mark") for each in (taken_off, kept)]
    assert notes.change(marks) == (True, True)

    def disturb(number: int, _path: str) -> None:
        if number == 4:  # to move it, after a look and an etcd lease
            late = NoteChange("T", noted_late.name, noted_late.fence, None, "late")
            assert notes.change([late, marks[0]._replace(before="mark", after=None)]) == (True,) * 2

    between.listen(before=disturb)
    assert renewer.engine.renew("me", ttl_seconds=300) == tuple(NAMES[:3])
    noted = [(each.name, each.fence, each.text) for each in notes.of_pool("T")]
    assert noted == [(kept.name, kept.fence, "mark"), (noted_late.name, noted_late.fence, "late")]
    (moved_to,) = store.etcd_lease_ids()
    (found,) = store.gateway.read(read_all(store.keys.notes("T"))).answers
    assert {kv.etcd_lease_id for kv in found.items} == {moved_to}
    store.engine.free("me")
    assert keys_left(store) == []
