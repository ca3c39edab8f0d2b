"""etcd as a store when requests, processes, watches and members fail; against a real server."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Callable

import httpx
import pytest

from leasectl.backends.base import Patience, Progress
from leasectl.engines.etcd_records import MOST_AT_ONCE, lease_in
from leasectl.engines.etcd_requests import encode, put, read_all
from leasectl.errors import (
    BackendUnreachable,
    InvalidRequest,
    LeaseError,
    NoLease,
    NotAllowed,
    NotFound,
)
from leasectl.model import Lease, Request
from tests.crash.forking import end_all, ending, fork
from tests.crash.history import Recorder, read_history, violations
from tests.engines.etcd_access import Access
from tests.engines.etcd_relay import Relay, relay
from tests.engines.etcd_server import EtcdServer, etcd_server
from tests.support import eventually

NAMES = ["T--0", "T--1", "T--2", "T--3"]
SHORT = 2.0  # seconds: etcd's shortest


@pytest.fixture
def store(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a pool of four that nobody has touched."""
    access = Access(etcd.endpoints, prefix)
    access.pools.create_pool("T", NAMES)
    return access


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    yield
    end_all()


def whole_story(access: Access) -> None:
    """Everything that an owner does with leases, and what comes of it."""
    leases = access.acquire("me", Request("T", count=3, ttl_seconds=60), wait=0)
    assert [lease.name for lease in leases] == NAMES[:3]
    assert {lease.grant for lease in leases} == {1}
    assert access.engine.renew("me") == tuple(NAMES[:3])
    assert access.engine.free("me", NAMES[:1]) == (NAMES[0],)
    assert access.engine.free("me") == tuple(NAMES[1:3])
    (named,) = access.acquire("me", Request("T", name=NAMES[1]), wait=0)
    assert named.grant == 2
    assert access.engine.renew("me") == (NAMES[1],)
    with pytest.raises(NoLease):
        access.acquire("other", Request("T", count=4), wait=0)
    assert access.engine.free("me") == (NAMES[1],)


def keys_left(access: Access) -> list[str]:
    """What is in the store besides the pool."""
    (found,) = access.gateway.read(read_all(access.keys.prefix)).answers
    kinds = ("held", "alive", "owned", "ticket", "waiting")
    keys = [kv.key[len(access.keys.prefix) :] for kv in found.items]
    return [key for key in keys if key.split("/")[0] in kinds]


class TestLostAnswers:
    def test_whichever_answer_is_lost_the_story_is_the_same(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        number = losing = 0
        while losing <= number:
            losing += 1
            direct = Access(etcd.endpoints, f"{prefix}/{losing}")
            direct.pools.create_pool("T", NAMES)
            first = len(between.paths)
            between.after = lambda at, _path, lose=first + losing: at == lose  # type: ignore[misc]
            through = Access([between.endpoint], f"{prefix}/{losing}")
            whole_story(through)
            number = len(between.paths) - first
            assert (through.lost, keys_left(direct), direct.held()) == ([], [], []), losing
        assert number > 20

    def test_whichever_answer_is_lost_a_pool_is_changed_once(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        number = losing = 0
        while losing <= number:
            losing += 1
            direct = Access(etcd.endpoints, f"{prefix}/{losing}")
            first = len(between.paths)
            between.after = lambda at, _path, lose=first + losing: at == lose  # type: ignore[misc]
            through = Access([between.endpoint], f"{prefix}/{losing}")
            through.pools.create_pool("T", NAMES)
            direct.acquire("me", Request("T", name=NAMES[0]))
            through.pools.add_resources("T", ["T--4", "T--5"])
            through.pools.remove_resources("T", [NAMES[1], NAMES[0]], force=True)
            names = [resource.name for resource in through.pool().resources]
            assert names == [*NAMES[2:], "T--4", "T--5"], losing
            assert through.lost == [("me", (NAMES[0],))], losing
            through.pools.delete_pool("T", force=False)
            number = len(between.paths) - first
            (found,) = direct.gateway.read(read_all(direct.keys.prefix)).answers
            assert found.items == (), losing
        assert number > 12

    def test_a_server_that_is_not_there_is_named_within_the_deadline(self, prefix: str) -> None:
        access = Access(["http://127.0.0.1:1"], prefix, seconds=0.3)
        with pytest.raises(BackendUnreachable, match=r"127\.0\.0\.1:1.*is it there"):
            access.acquire("me", Request("T"))

    def test_what_is_no_etcd_is_named(self, between: Relay, prefix: str) -> None:
        access = Access([between.endpoint + "/nowhere"], prefix, seconds=0.3)
        with pytest.raises(BackendUnreachable, match=r"404.*etcd"):
            access.acquire("me", Request("T"))


def participate(between: Relay, store: Access, request: Request) -> None:
    """What a participant does that is going to be killed."""
    access = Access([between.endpoint], store.keys.prefix)
    access.acquire("dead", request, wait=0)
    access.engine.renew("dead")
    access.engine.free("dead", NAMES[:1])
    access.engine.free("dead")


class Victim:
    """A process that is killed at one of its requests.

    Args:
        between: What its requests go through.
        when: ``before`` the request is passed on, or ``after`` it was answered.
        fatal: The number of the request.
    """

    def __init__(self, between: Relay, when: str, fatal: int) -> None:
        self._fatal = len(between.paths) + fatal
        self._pids: list[int] = []
        between.listen(**{when: self._kill})

    def run(self, work: Callable[[], object]) -> bool:
        """Run it in a process; returns whether it was killed before its end."""
        self._pids.append(fork(work))
        code = ending(self._pids[0])
        assert code in (0, -signal.SIGKILL)
        return code != 0

    def _kill(self, at: int, _path: str) -> bool:
        if at == self._fatal:
            os.kill(eventually(lambda: self._pids)[0], signal.SIGKILL)
        return at >= self._fatal


class TestKilled:
    """Participants that are killed at each of their requests, before or after it is done."""

    def killed_at_each_request(
        self, etcd: EtcdServer, between: Relay, prefix: str, request: Request, when: str
    ) -> list[Access]:
        """One store for each request at which a participant was killed."""
        stores: list[Access] = []
        while True:
            store = Access(etcd.endpoints, f"{prefix}/{when}/{len(stores)}")
            store.pools.create_pool("T", NAMES)
            victim = Victim(between, when, fatal=len(stores) + 1)
            if not victim.run(lambda s=store: participate(between, s, request)):  # type: ignore[misc]
                return stores
            stores.append(store)

    def test_what_the_killed_held_is_free_after_one_ttl(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        request = Request("T", count=3, ttl_seconds=SHORT)
        stores = self.killed_at_each_request(etcd, between, prefix, request, "before")
        stores += self.killed_at_each_request(etcd, between, prefix, request, "after")
        assert len(stores) > 20
        for store in stores:
            assert len(store.acquire("next", Request("T", count=4))) == 4
            store.engine.free("next")
            eventually(lambda s=store: keys_left(s) == [], what=str(keys_left(store)))  # type: ignore[misc]

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_what_the_killed_held_for_ever_is_found_by_asking(
        self, etcd: EtcdServer, between: Relay, prefix: str, when: str
    ) -> None:
        request = Request("T", count=3)
        stores = self.killed_at_each_request(etcd, between, prefix, request, when)
        assert len(stores) > 10
        for store in stores:
            store.engine.withdraw("dead")
            store.engine.free("dead")
            assert (keys_left(store), store.held(), store.lost) == ([], [], [])
            assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4


class TestWaiting:
    def test_an_idle_waiter_makes_no_request_but_its_keep_alive(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix)
        pending = waiter.begin("waiter", Request("T", ttl_seconds=SHORT))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        busy = len(between.paths)
        # More of them than would fit into one ttl: its ticket is still there because of them.
        eventually(lambda: len(between.paths) >= busy + 5, what="keep-alives")
        assert set(between.paths[busy:]) == {"/v3/lease/keepalive"}
        assert store.queue() == ["waiter"]
        store.engine.free("holder")
        assert len(pending.result(timeout=10)) == 1

    def test_what_was_released_while_cut_off_is_had_even_after_compaction(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        pending = Access([between.endpoint], prefix).begin("waiter", Request("T"))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        store.engine.free("holder")
        revision = store.gateway.read().revision
        body = {"revision": str(revision)}
        httpx.post(f"{etcd.endpoints[0]}/v3/kv/compaction", json=body).raise_for_status()
        between.mend()
        assert len(pending.result(timeout=10)) == 1

    def test_what_others_wrote_that_cannot_be_read_hides_nothing_that_comes_after(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        pending = Access([between.endpoint], prefix).begin("waiter", Request("T"))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        key = encode(store.keys.frees("T") + "elsewhere")
        for action, body in (("put", {"value": b64encode(b"\xff").decode()}), ("deleterange", {})):
            url = f"{etcd.endpoints[0]}/v3/kv/{action}"
            httpx.post(url, json={"key": key, **body}).raise_for_status()
        store.engine.free("holder")
        between.mend()
        assert len(pending.result(timeout=10)) == 1

    def test_a_watch_that_was_cut_goes_on_where_it_was(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        pending = Access([between.endpoint], prefix).begin("waiter", Request("T"))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        store.engine.free("holder")
        between.mend()
        assert len(pending.result(timeout=10)) == 1

    def test_a_waiter_whose_lease_is_revoked_ends_and_the_next_one_is_served(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        store.acquire("holder", Request("T"))
        pending = Access(etcd.endpoints, prefix).begin("revoked", Request("T", count=4))
        eventually(lambda: store.queue() == ["revoked"])
        next_one = Access(etcd.endpoints, prefix).begin("next", Request("T", count=3))
        eventually(lambda: store.queue() == ["revoked", "next"])
        (found,) = store.gateway.read(read_all(store.keys.tickets("T"))).answers
        by_number = sorted(found.items, key=lambda kv: kv.create_revision)
        store.gateway.revoke(int(by_number[0].key.rpartition("/")[2], 16))
        with pytest.raises(LeaseError):
            pending.result(timeout=10)
        assert len(next_one.result(timeout=10)) == 3

    def test_a_waiter_that_was_cut_off_for_its_ttl_says_that_it_lost_its_place(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=1.0)
        pending = waiter.begin("waiter", Request("T", ttl_seconds=SHORT))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        with pytest.raises(BackendUnreachable):
            pending.result(timeout=20)
        eventually(lambda: store.queue() == [], what="its ticket is gone")

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize(
        ("name", "number"), [(None, 1), (NAMES[0], 1), (NAMES[0], 2), (NAMES[0], 3)]
    )
    def test_a_silence_that_its_place_outlasts_costs_it_nothing(
        self,
        store: Access,
        between: Relay,
        prefix: str,
        when: str,
        name: str | None,
        number: int,
    ) -> None:
        """etcd falls silent while it looks again, or claims: the last request of each case."""
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=0.3)
        said: list[str] = []

        def note(line: str) -> None:
            said.append(line)
            between.mend()

        request = Request("T", name=name, ttl_seconds=60)
        pending = waiter.begin("waiter", request, Patience(warn=note))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        wanted = len(between.paths) + number

        def fall_silent(each: int, _path: str) -> bool:
            if each == wanted:
                between.listen()
                between.cut()
            return each == wanted

        between.listen(**{when: fall_silent})
        store.engine.free("holder")
        (lease,) = pending.result(timeout=10)
        assert store.held() == [lease.name]
        assert waiter.engine.renew("waiter") == (lease.name,)
        assert len(said) == 1

    def test_a_report_that_cannot_be_made_does_not_end_the_wait(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=0.3)
        reports: list[Progress] = []
        said: list[str] = []
        patience = Patience(report=reports.append, report_seconds=0.01, warn=said.append)
        pending = waiter.begin("waiter", Request("T", ttl_seconds=60), patience)
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        eventually(lambda: said, what="it has found out")
        before = len(reports)
        between.mend()
        eventually(lambda: len(reports) > before, what="it reports again")
        assert len(said) == 1
        store.engine.free("holder")
        assert len(pending.result(timeout=10)) == 1

    def test_a_wait_that_ends_in_a_silence_says_so(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        waiter = Access([between.endpoint], prefix, seconds=0.3)
        patience = Patience(wait_seconds=2, report=lambda _: None, report_seconds=0.1)
        pending = waiter.begin("waiter", Request("T", ttl_seconds=60), patience)
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        between.cut()
        with pytest.raises(BackendUnreachable, match="no answer from etcd"):
            pending.result(timeout=10)

    def test_an_expired_holder_is_told_when_it_renews(self, store: Access) -> None:
        store.acquire("holder", Request("T", ttl_seconds=SHORT))
        waiting = store.begin("waiter", Request("T", name=NAMES[0]))
        assert len(waiting.result(timeout=10)) == 1
        assert store.lost == [("holder", (NAMES[0],))]
        assert store.engine.renew("holder") == ()


class TestReleasedByAnother:
    def test_a_release_whose_answer_was_lost_is_not_taken_for_anothers(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        """Two release at once; the request of the first is lost, and the second is faster."""
        store.acquire("holder", Request("T", count=2, ttl_seconds=60))
        slow = Access([between.endpoint], prefix)
        told: list[tuple[str, ...]] = []

        def lose(number: int, path: str) -> None:
            if path == "/v3/kv/txn" and number == release and not told:
                told.append(store.engine.free("holder"))
                between.cut()
                between.mend()

        release = len(between.paths) + 3  # after two looks
        between.listen(before=lose)
        told.append(slow.engine.free("holder"))
        assert told == [tuple(NAMES[:2]), ()]


class TestGrantedLate:
    def test_a_claim_that_is_told_of_after_its_ttl_is_given_back(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        def hold_back(number: int, _path: str) -> None:
            if number == claim:
                time.sleep(SHORT + 0.5)

        late = Access([between.endpoint], prefix)
        claim = len(between.paths) + 5
        between.listen(after=hold_back)
        with pytest.raises(BackendUnreachable, match="lost the place"):
            late.acquire("late", Request("T", ttl_seconds=SHORT))
        assert store.held() == []
        assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4


class TestEndedEarly:
    """Whoever revokes a claim's etcd lease ends it before its holder can know."""

    @pytest.fixture
    def revoked(self, store: Access) -> Lease:
        """A lease of which that is so; it is the only one."""
        (lease,) = store.acquire("holder", Request("T", name=NAMES[0], ttl_seconds=SHORT))
        (found,) = store.gateway.read(read_all(store.keys.helds("T"), keys_only=True)).answers
        store.gateway.revoke(lease_in(found.items[0]))
        return lease

    def test_it_is_granted_to_nobody_before_its_holder_had_to_stop(
        self, store: Access, revoked: Lease
    ) -> None:
        (lease,) = store.acquire("next", Request("T", name=revoked.name))
        assert lease.acquire_time >= revoked.renew_time + SHORT
        assert lease.fence > revoked.fence
        assert store.lost == [("holder", (revoked.name,))]

    def test_until_then_it_shows_as_held_and_its_pool_is_in_use(
        self, store: Access, revoked: Lease
    ) -> None:
        assert store.held() == [revoked.name]
        with pytest.raises(NotAllowed):
            store.pools.remove_resources("T", [revoked.name], force=False)
        with pytest.raises(NotAllowed):
            store.pools.delete_pool("T", force=False)

    def test_others_are_granted_meanwhile(self, store: Access, revoked: Lease) -> None:
        assert len(store.acquire("other", Request("T", count=3), wait=0)) == 3

    def test_its_holder_learns_of_it_and_has_given_it_back_by_a_release(
        self, store: Access, revoked: Lease
    ) -> None:
        assert store.engine.renew("holder") == ()
        assert store.held() == [revoked.name]
        assert store.engine.free("holder") == ()
        assert store.held() == []
        assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4

    def test_a_clock_that_is_wrong_delays_that_for_a_ttl_at_most(
        self, etcd: EtcdServer, store: Access, revoked: Lease, prefix: str
    ) -> None:
        (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
        in_an_hour = str(revoked.renew_time + 3600)
        store.gateway.commit((), [put(found.items[0].key, in_an_hour)])
        (lease,) = store.acquire("next", Request("T", name=revoked.name))
        assert lease.acquire_time < revoked.renew_time + 3600


class TestOwners:
    def test_owners_of_the_same_name_in_two_places_are_two(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        elsewhere = Access(etcd.endpoints, prefix, place="other-host")
        store.acquire("handle", Request("T"))
        elsewhere.acquire("handle", Request("T"))
        assert store.engine.free("handle") == (NAMES[0],)
        assert elsewhere.held() == [NAMES[1]]
        assert [each.owner for each in store.pool().resources[:2]] == [None, "@other-host/handle"]

    def test_what_nobody_of_ours_wrote_is_refused(self, store: Access) -> None:
        store.gateway.commit((), [put(store.keys.resource("T", "a;b\x1b"), "")])
        with pytest.raises(LeaseError, match="not allowed"):
            store.pool()


class TestSizes:
    def test_more_than_a_transaction_can_do_is_refused(self, store: Access) -> None:
        store.pools.add_resources("T", [f"U--{n:03d}" for n in range(100)])
        with pytest.raises(InvalidRequest, match=f"--count 61.*{MOST_AT_ONCE} at most"):
            store.acquire("me", Request("T", count=61))
        assert len(store.acquire("me", Request("T", count=MOST_AT_ONCE))) == MOST_AT_ONCE
        assert len(store.engine.free("me")) == MOST_AT_ONCE

    def test_a_large_pool_is_made_and_deleted_whole(self, store: Access) -> None:
        store.pools.create_pool("U", [f"U--{n:03d}" for n in range(300)])
        assert store.pool("U").capacity == 300
        with pytest.raises(InvalidRequest, match="U--299"):
            store.pools.create_pool("V", [*(f"V--{n:03d}" for n in range(100)), "U--299"])
        with pytest.raises(NotFound):
            store.pools.pools("V")
        store.pools.delete_pool("U", force=False)
        store.pools.create_pool("V", [f"U--{n:03d}" for n in range(300)])

    def test_a_pool_whose_maker_was_killed_does_not_keep_its_names(
        self, etcd: EtcdServer, between: Relay, store: Access, prefix: str
    ) -> None:
        names = [f"U--{n:03d}" for n in range(100)]
        maker = Access([between.endpoint], prefix)
        victim = Victim(between, "after", fatal=7)
        assert victim.run(lambda: maker.pools.create_pool("U", names))
        with pytest.raises(NotFound):
            store.pools.pools("U")
        # What it was being made under runs out after a while; so let it.
        (found,) = store.gateway.read(read_all(store.keys.pools())).answers
        for kv in found.items:
            if kv.value:
                store.gateway.revoke(int(kv.value.split()[-1]))
        store.pools.create_pool("V", names)
        assert store.pool("V").capacity == 100


def test_16_processes_share_4_resources(
    etcd: EtcdServer, store: Access, prefix: str, tmp_path: Path
) -> None:
    history = tmp_path / "history"

    def choose(rng: random.Random) -> Request:
        return rng.choice(
            [
                Request("T"),
                Request("T", count=rng.randint(1, 4), ttl_seconds=60),
                Request("T", name=rng.choice(NAMES)),
            ]
        )

    def take_turns(number: int) -> None:
        access, rng = Access(etcd.endpoints, prefix), random.Random(number)
        recorder = Recorder(history)
        for turn in range(6):
            leases = access.acquire(f"p{number}", choose(rng))
            recorder.write("granted", f"p{number}/{turn}", leases)
            recorder.write("releasing", f"p{number}/{turn}", leases)
            assert len(access.engine.free(f"p{number}")) == len(leases)

    pids = [fork(lambda n=n: take_turns(n)) for n in range(16)]  # type: ignore[misc]
    assert [ending(pid) for pid in pids] == [0] * 16
    events = read_history(history)
    assert len({event.ticket for event in events}) == 96
    assert violations(events, capacity=4) == []
    assert keys_left(store) == []


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
        pending = waiter.begin("waiter", Request("T", ttl_seconds=4))
        eventually(lambda: "/v3/watch" in between.paths, what="it listens")
        return pending

    def test_a_waiter_leaves_one_that_answers_and_applies_nothing(
        self, store: Access, between: Relay, other: Relay, pending: Future[tuple[Lease, ...]]
    ) -> None:
        frozen = len(between.paths)
        between.freeze(store.gateway.read().revision)
        store.engine.free("holder")
        assert len(pending.result(timeout=20)) == 1
        assert set(between.paths[frozen:]) == {"/v3/lease/keepalive"}
        assert "/v3/watch" in other.paths

    def test_an_idle_waiter_makes_no_request_but_its_keep_alive_to_one_of_them_at_a_time(
        self, store: Access, between: Relay, other: Relay, pending: Future[tuple[Lease, ...]]
    ) -> None:
        first, interval = len(between.paths), 4 / 3 - 0.05

        def pauses_after(relay: Relay) -> list[float]:
            times = sorted(between.times[first:] + other.times)
            return [after - at for at, after in zip(times, times[1:]) if at in relay.times]

        # One that is late, as on a busy machine, is repeated.
        eventually(lambda: max(pauses_after(other), default=0) > interval, timeout=30)
        eventually(lambda: len(pauses_after(between)) > 2, timeout=10)
        assert min(pauses_after(between)) > interval  # as if there were no other
        assert set(between.paths[first:] + other.paths) == {"/v3/lease/keepalive"}
        assert store.queue() == ["waiter"]
        store.engine.free("holder")
        assert len(pending.result(timeout=10)) == 1

    @pytest.mark.parametrize("how", ["is gone", "hangs", "lags"])
    def test_whatever_the_other_is_like_no_keep_alive_is_lost_by_it(
        self,
        store: Access,
        between: Relay,
        other: Relay,
        pending: Future[tuple[Lease, ...]],
        how: str,
    ) -> None:
        is_over = threading.Event()
        if how == "is gone":
            other.close()
        elif how == "hangs":
            other.listen(before=lambda _number, _path: is_over.wait())
        else:
            other.freeze(1)
        first = len(between.paths)
        eventually(lambda: len(between.paths) >= first + 5, timeout=20, what="keep-alives")
        assert set(between.paths[first:]) == {"/v3/lease/keepalive"}
        times = between.times[first:]
        assert max(after - before for before, after in zip(times, times[1:])) < 2 * 4 / 3
        assert store.queue() == ["waiter"]
        assert len(other.paths) == (how != "is gone")  # it rests, and nothing else goes there
        is_over.set()
        store.engine.free("holder")
        assert len(pending.result(timeout=10)) == 1


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
        assert len(pending.result(timeout=20)) == 1
        assert waiter.engine.renew("waiter") == (NAMES[0],)
    finally:
        cluster.signal(member, signal.SIGCONT)
        cluster.wait()
