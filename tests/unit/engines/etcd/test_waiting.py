"""Who waits on etcd while connections, watches and members fail; against real servers."""

from __future__ import annotations

import signal
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future

import httpx
import pytest

from leasectl.backends.contract import Patience, Progress
from leasectl.engines.etcd.requests import encode
from leasectl.errors import (
    BackendUnreachable,
    LeaseError,
    NoLease,
)
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import boottime_seconds
from tests.kit.etcd.access import NAMES, SHORT, Access, begin_listening, revisions
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.relay import Relay, relay
from tests.kit.waits import eventually, result_of


class TestWaiting:
    def test_an_idle_waiter_writes_nothing_but_keeps_its_ticket_alive(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix)
        pending = begin_listening(waiter, between, Request("T", ttl_seconds=SHORT))
        eventually(lambda: "/v3/lease/keepalive" in between.paths)
        busy, before = len(between.paths), revisions(store)
        # More of them than would fit into one ttl: its ticket is still there because of them.
        eventually(
            lambda: between.paths[busy:].count("/v3/lease/keepalive") >= 5, what="keep-alives"
        )
        assert revisions(store) == before
        assert store.queue() == ["waiter"]
        store.engine.free("holder")
        assert len(result_of(pending)) == 1

    def test_a_ticket_that_nobody_was_told_of_is_taken_away_by_its_claim_key(
        self, store: Access
    ) -> None:
        claimant = Claimant("waiter", "waiter@host", Request("T"))
        put, unheard = (store.engine.waiter(claimant, until=None) for _ in range(2))
        put.enqueue()
        unheard.dequeue()
        assert store.queue() == []

    def test_what_was_released_while_cut_off_is_had_even_after_compaction(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        pending = begin_listening(Access([between.endpoint], prefix), between, Request("T"))
        between.cut()
        store.engine.free("holder")
        revision = store.gateway.read().revision
        body = {"revision": str(revision)}
        httpx.post(f"{etcd.endpoints[0]}/v3/kv/compaction", json=body).raise_for_status()
        between.mend()
        assert len(result_of(pending)) == 1

    def test_what_others_wrote_that_cannot_be_read_hides_nothing_that_comes_after(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        pending = begin_listening(Access([between.endpoint], prefix), between, Request("T"))
        between.cut()
        key = encode(store.keys.frees("T") + "elsewhere")
        for action, body in (("put", {"value": b64encode(b"\xff").decode()}), ("deleterange", {})):
            url = f"{etcd.endpoints[0]}/v3/kv/{action}"
            httpx.post(url, json={"key": key, **body}).raise_for_status()
        store.engine.free("holder")
        between.mend()
        assert len(result_of(pending)) == 1

    def test_a_waiter_whose_lease_is_revoked_ends_and_the_next_one_is_served(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        store.acquire("holder", Request("T"))
        pending = Access(etcd.endpoints, prefix).begin("revoked", Request("T", count=4))
        eventually(lambda: store.queue() == ["revoked"])
        next_one = Access(etcd.endpoints, prefix).begin("next", Request("T", count=3))
        eventually(lambda: store.queue() == ["revoked", "next"])
        (ticket,) = store.context.tickets("revoked")
        store.gateway.revoke(int(ticket.life, 16))
        with pytest.raises(LeaseError):
            result_of(pending)
        assert len(result_of(next_one)) == 3

    def test_a_waiter_that_was_cut_off_for_its_ttl_says_that_it_lost_its_place(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=1.0)
        pending = begin_listening(waiter, between, Request("T", ttl_seconds=SHORT))
        between.cut()
        with pytest.raises(BackendUnreachable):
            result_of(pending)
        eventually(lambda: store.queue() == [], what="its ticket is gone")

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("name", [None, NAMES[0]])
    def test_a_silence_that_its_place_outlasts_costs_it_nothing(
        self,
        store: Access,
        between: Relay,
        prefix: str,
        when: str,
        name: str | None,
    ) -> None:
        """etcd falls silent while it claims."""
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=1.0)
        said: list[str] = []

        def note(line: str) -> None:
            said.append(line)
            between.mend()

        request = Request("T", name=name, ttl_seconds=60)
        pending = begin_listening(waiter, between, request, Patience(warn=note))
        wanted = len(between.paths) + 1

        def fall_silent(each: int, _path: str) -> bool:
            if each == wanted:
                between.listen()
                between.cut()
            return each == wanted

        between.listen(**{when: fall_silent})
        store.engine.free("holder")
        (lease,) = result_of(pending)
        assert store.held() == [lease.name]
        assert waiter.engine.renew("waiter") == (lease.name,)
        assert len(said) == 1

    def test_a_report_that_cannot_be_made_does_not_end_the_wait(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=1.0)
        reports: list[Progress] = []
        said: list[str] = []
        patience = Patience(report=reports.append, report_seconds=0.01, warn=said.append)
        pending = begin_listening(waiter, between, Request("T", ttl_seconds=60), patience)
        between.cut()
        eventually(lambda: said, what="it has found out")
        before = len(reports)
        between.mend()
        eventually(lambda: len(reports) > before, what="it reports again")
        assert len(said) == 1
        store.engine.free("holder")
        assert len(result_of(pending)) == 1

    def test_a_wait_that_ends_in_a_silence_says_so(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=0.3)
        patience = Patience(wait_seconds=2, report=lambda _: None, report_seconds=0.1)
        pending = begin_listening(waiter, between, Request("T", ttl_seconds=60), patience)
        between.cut()
        with pytest.raises(NoLease, match="within 2s: no answer from etcd"):
            result_of(pending)

    def test_a_lease_that_etcd_ends_early_is_lost_and_kept_for_its_time(
        self, store: Access
    ) -> None:
        since = boottime_seconds()
        store.acquire("holder", Request("T", count=4, ttl_seconds=SHORT))
        store.end("holder")
        assert store.engine.renew("holder") == ()
        assert len(result_of(store.begin("waiter", Request("T", name=NAMES[0])))) == 1
        assert boottime_seconds() - since >= SHORT


class TestTwoMembers:
    """Of which one is listened to; both are one real member, each behind a relay."""

    @pytest.fixture
    def other(self, etcd: EtcdServer) -> Iterator[Relay]:
        with relay(etcd.endpoints[0]) as other:
            yield other

    @pytest.fixture
    def pending(
        self, store: Access, between: Relay, other: Relay, prefix: str
    ) -> Future[tuple[Lease, ...]]:
        """A waiter that listens to the first of them."""
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint, other.endpoint], prefix)
        pending = begin_listening(waiter, between, Request("T", ttl_seconds=4))
        return pending

    def test_a_waiter_leaves_one_that_answers_and_applies_nothing(
        self, store: Access, between: Relay, other: Relay, pending: Future[tuple[Lease, ...]]
    ) -> None:
        between.freeze(store.gateway.read().revision)
        store.engine.free("holder")
        assert len(result_of(pending)) == 1
        assert "/v3/kv/txn" in other.paths


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdServer]:
    with etcd_server(size=3) as server:
        yield server


@pytest.mark.parametrize("which", ["the leader", "a follower"])
def test_a_waiter_moves_on_from_a_member_that_hangs(
    cluster: EtcdServer, prefix: str, which: str
) -> None:
    member = (cluster.leader() + (which == "a follower")) % 3
    others = [each for n, each in enumerate(cluster.endpoints) if n != member]
    store = Access(others, prefix)
    store.pools.create_pool("T", NAMES)
    store.acquire("holder", Request("T", count=4))
    waiter = Access([cluster.endpoints[member], *others], prefix)
    pending = waiter.begin("waiter", Request("T", ttl_seconds=4))
    eventually(lambda: store.queue() == ["waiter"])
    cluster.signal(member, signal.SIGSTOP)
    try:
        store.engine.free("holder")
        assert len(result_of(pending)) == 1
        assert waiter.engine.renew("waiter") == (NAMES[0],)
    finally:
        cluster.signal(member, signal.SIGCONT)
        cluster.wait()
