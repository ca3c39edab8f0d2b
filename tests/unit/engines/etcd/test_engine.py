"""etcd as a store when requests, processes, watches and members fail; against a real server."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
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

from leasectl.backends.contract import Patience, Progress
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import encode, put, read, read_all
from leasectl.engines.etcd.records import MOST_AT_ONCE, etcd_lease_id_in
from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    LeaseError,
    NoLease,
    NotAllowed,
    NotFound,
)
from leasectl.model import Lease, Request
from tests.kit.etcd.access import Access
from tests.kit.etcd.relay import Relay, relay
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.forking import end_all, ending, fork
from tests.kit.history import Recorder, read_history, violations
from tests.kit.support import ManualClock, eventually

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
    kinds = ("held", "alive", "renewed", "gone", "owned", "ticket", "waiting")
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

    def test_who_has_not_answered_can_be_left_alone_for_a_while(self, between: Relay) -> None:
        time = ManualClock()
        gateway = Gateway(
            [between.endpoint],
            clock=time.clock,
            deadline_seconds=1.0,
            rest_seconds=5.0,
            pause=time.advance,
        )
        between.cut()
        with pytest.raises(BackendUnreachable, match="no answer from etcd within 1s") as first:
            gateway.read()
        between.mend()
        time.advance(4.9)
        with pytest.raises(BackendUnreachable) as second:
            gateway.read()
        assert str(second.value) == str(first.value)
        assert between.paths == []
        time.advance(0.2)
        gateway.read()
        assert len(between.paths) == 1

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


def lost_before(between: Relay, number: int, happens: Callable[[], object]) -> None:
    """Have a request be lost, counted from here, after something else has happened."""
    lost = len(between.paths) + number

    def lose(at: int, _path: str) -> None:
        if at == lost:
            happens()
            between.cut()
            between.mend()

    between.listen(before=lose)


class TestOvertaken:
    """A request is lost before it is carried out, and somebody else is faster than the next try."""

    def test_a_release_is_not_taken_for_anothers(
        self, etcd: EtcdServer, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=2, ttl_seconds=60))
        slow = Access([between.endpoint], prefix)
        told: list[tuple[str, ...]] = []
        lost_before(between, 3, lambda: told.append(store.engine.free("holder")))  # after two looks
        told.append(slow.engine.free("holder"))
        assert told == [tuple(NAMES[:2]), ()]

    def test_a_pool_that_has_come_into_use_is_not_said_to_be_deleted(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        slow = Access([between.endpoint], prefix)
        lost_before(between, 4, lambda: store.acquire("holder", Request("T")))
        with pytest.raises(NotAllowed, match="in use"):
            slow.pools.delete_pool("T", force=False)
        assert store.held() == [NAMES[0]]

    def test_a_pool_that_was_deleted_and_made_again_is_left_alone(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        def make_again() -> None:
            store.pools.delete_pool("T", force=False)
            store.pools.create_pool("T", NAMES[:1])

        slow = Access([between.endpoint], prefix)
        lost_before(between, 4, make_again)
        slow.pools.delete_pool("T", force=True)
        assert store.pool().capacity == 1

    def test_names_that_somebody_else_added_are_not_said_to_be_added(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        slow = Access([between.endpoint], prefix)
        lost_before(between, 3, lambda: store.pools.add_resources("T", ["T--4"]))
        with pytest.raises(InvalidRequest, match="already in pool"):
            slow.pools.add_resources("T", ["T--4"])

    def test_a_pool_that_took_too_long_to_make_is_not_said_to_be_made(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        def run_out() -> None:
            (found,) = store.gateway.read(read(store.keys.pool("U"))).answers
            assert found.first is not None
            store.gateway.revoke(int(found.first.value.split()[-1]))

        slow = Access([between.endpoint], prefix)
        lost_before(between, 7, run_out)
        with pytest.raises(NotFound):
            slow.pools.create_pool("U", ["U--0"])
        store.pools.create_pool("U", ["U--0"])


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
        store.gateway.revoke(etcd_lease_id_in(found.items[0]))
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
        self, store: Access, revoked: Lease
    ) -> None:
        date_in_an_hour(store)
        (lease,) = store.acquire("next", Request("T", name=revoked.name))
        assert lease.acquire_time < revoked.acquire_time + 3600

    def test_what_has_run_out_in_time_is_freed_without_further_ado(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4, ttl_seconds=SHORT))
        eventually(lambda: store.held() == [], what="it has run out")
        Access([between.endpoint], prefix).acquire("next", Request("T"), wait=0)
        assert between.paths.count("/v3/lease/grant") == 1  # its own
        # Possible? In the queue; look; what has run out, that claim, and free it; look; claim.
        assert between.paths.count("/v3/kv/txn") == 8


def date_in_an_hour(store: Access) -> None:
    """Have it look as if a holder's clock were an hour ahead; there is one holder."""
    (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
    (date,) = found.items
    store.gateway.commit((), [put(date.key, str(float(date.value) + 3600))])


def ask(store: Access, *, endpoint: str | None = None) -> list[Lease]:
    """What a process of its own gets, and gives back, that doesn't wait for the first resource."""
    access = Access([endpoint or store.gateway.endpoints[0]], store.keys.prefix)
    leases: list[Lease] = []
    with contextlib.closing(access.gateway), contextlib.suppress(NoLease):
        request = Request("T", name=NAMES[0], ttl_seconds=SHORT)
        leases += access.acquire("asks", request, wait=0)
        access.engine.free("asks")
    return leases


class TestEndedEarlyWhereNobodyWaits:
    """The same, with a holder whose clock is ahead, and for processes that are gone at once."""

    @pytest.fixture
    def new_store(self, etcd: EtcdServer, prefix: str) -> Callable[[], Access]:
        """Makes one of which that is so."""
        numbers = itertools.count()

        def make() -> Access:
            store = Access(etcd.endpoints, f"{prefix}/{next(numbers)}")
            store.pools.create_pool("T", NAMES)
            store.acquire("holder", Request("T", name=NAMES[0], ttl_seconds=SHORT))
            (found,) = store.gateway.read(read_all(store.keys.helds("T"), keys_only=True)).answers
            store.gateway.revoke(etcd_lease_id_in(found.items[0]))
            date_in_an_hour(store)
            return store

        return make

    @staticmethod
    def come_free(*stores: Access) -> None:
        """Wait until it can be had in all of them, and see that nothing is left then."""
        waiting = list(stores)

        def all_had() -> bool:
            waiting[:] = [store for store in waiting if not ask(store)]
            return not waiting

        eventually(all_had, timeout=20)
        for store in stores:
            eventually(lambda s=store: keys_left(s) == [], what=str(keys_left(store)))  # type: ignore[misc]

    def test_it_is_had_a_ttl_after_the_first_of_them_saw_it_and_no_earlier(
        self, new_store: Callable[[], Access]
    ) -> None:
        store, first = new_store(), time.time()
        assert ask(store) == []
        (lease,) = eventually(lambda: ask(store))
        assert lease.acquire_time >= first + SHORT

    def test_a_date_that_has_passed_shortens_that(self, new_store: Callable[[], Access]) -> None:
        store = new_store()
        assert ask(store) == []
        (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
        store.gateway.commit((), [put(found.items[0].key, "0")])
        assert len(ask(store)) == 1

    def test_who_waits_for_what_another_has_seen_is_woken_when_that_is_over(
        self, new_store: Callable[[], Access]
    ) -> None:
        store, first = new_store(), time.time()
        assert ask(store) == []
        (lease,) = store.acquire("next", Request("T", name=NAMES[0]))
        assert lease.acquire_time >= first + SHORT

    def test_two_at_once_begin_one_ttl(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        store = new_store()

        def overtake(_number: int, _path: str) -> None:
            if between.paths.count("/v3/lease/grant") == 2:
                between.listen()
                assert ask(store) == []

        between.listen(before=overtake)
        assert ask(store, endpoint=between.endpoint) == []
        (gone,) = store.gateway.read(read_all(f"{store.keys.prefix}gone/")).answers
        assert [kv.key.split("/")[-1] for kv in gone.items][1:] == ["seen"]
        assert len(gone.items) == 2
        self.come_free(store)

    def test_whichever_answer_is_lost_it_comes_free(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        stores: list[Access] = []
        number = 0
        while len(stores) <= number:
            stores.append(new_store())
            first = len(between.paths)
            lose = first + len(stores)
            between.listen(after=lambda at, _path, lose=lose: at == lose)  # type: ignore[misc]
            assert ask(stores[-1], endpoint=between.endpoint) == []
            number = len(between.paths) - first
        assert number > 8
        self.come_free(*stores)

    def test_whoever_is_killed_at_whichever_request_it_comes_free(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        stores: list[Access] = []
        for when in ("before", "after"):
            for fatal in itertools.count(1):
                store = new_store()
                victim = Victim(between, when, fatal=fatal)
                if not victim.run(lambda s=store: ask(s, endpoint=between.endpoint)):  # type: ignore[misc]
                    break
                stores.append(store)
        assert len(stores) > 16
        self.come_free(*stores)

    def test_what_is_taken_away_by_force_leaves_nothing(
        self, new_store: Callable[[], Access]
    ) -> None:
        for take in ("remove", "delete"):
            store = new_store()
            assert ask(store) == []
            if take == "remove":
                store.pools.remove_resources("T", [NAMES[0]], force=True)
            else:
                store.pools.delete_pool("T", force=True)
            eventually(lambda s=store: keys_left(s) == [])  # type: ignore[misc]


class TestNoSpace:
    """etcd has reached its quota, and writes nothing until somebody has made room."""

    @pytest.fixture
    def full(self, prefix: str) -> Iterator[tuple[EtcdServer, Access]]:
        """Such a server, and access to a pool of which one is held."""
        with etcd_server() as server:
            store = Access(server.endpoints, prefix)
            store.pools.create_pool("T", NAMES)
            store.acquire("holder", Request("T", ttl_seconds=60))
            server.alarm(on=True)
            yield server, store

    def test_a_renewal_is_good_and_dated_again_when_there_is_space(
        self, full: tuple[EtcdServer, Access]
    ) -> None:
        server, store = full
        (lease,) = [each.lease for each in store.pool().resources if each.lease]
        assert store.engine.renew("holder") == (NAMES[0],)
        server.alarm(on=False)
        assert store.engine.renew("holder") == (NAMES[0],)
        (dated,) = [each.lease for each in store.pool().resources if each.lease]
        assert dated.renew_time is not None and lease.renew_time is not None
        assert dated.renew_time > lease.renew_time

    def test_nobody_is_granted_anything_and_all_are_told_what_to_do(
        self, full: tuple[EtcdServer, Access]
    ) -> None:
        _, store = full
        with pytest.raises(BackendUnreachable, match=r"space exceeded.*alarm disarm"):
            store.acquire("other", Request("T"))
        with pytest.raises(BackendUnreachable, match=r"space exceeded.*alarm disarm"):
            store.engine.free("holder")

    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    def test_a_claim_that_has_gone_is_lost_all_the_same(
        self, full: tuple[EtcdServer, Access], prefix: str, number: int
    ) -> None:
        """Before any request of the renewal: the last looks, as there is no space for a date."""
        server, store = full
        (found,) = store.gateway.read(read_all(store.keys.helds("T"), keys_only=True)).answers
        with relay(server.endpoints[0]) as between:

            def revoke(at: int, _path: str) -> None:
                if at == number:
                    store.gateway.revoke(etcd_lease_id_in(found.items[0]))

            between.listen(before=revoke)
            assert Access([between.endpoint], prefix).engine.renew("holder") == ()


class TestOwners:
    def test_owners_of_the_same_name_in_two_places_are_two(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        elsewhere = Access(etcd.endpoints, prefix, state_id="other-host")
        store.acquire("handle", Request("T"))
        elsewhere.acquire("handle", Request("T"))
        assert store.engine.free("handle") == (NAMES[0],)
        assert elsewhere.held() == [NAMES[1]]
        assert [each.claim_key for each in store.pool().resources[:2]] == [
            None,
            "@other-host/handle",
        ]

    def test_what_nobody_of_ours_wrote_is_refused(self, store: Access) -> None:
        store.gateway.commit((), [put(store.keys.resource("T", "a;b\x1b"), "")])
        with pytest.raises(LeaseError, match="not allowed"):
            store.pool()


class TestForeignText:
    """Not every Python finds the same characters printable; this one none does."""

    UNKNOWN = "\U0001fae8\u0378"
    SHOWN = "\\u0378"

    @pytest.fixture
    def labelled(self, store: Access) -> str:
        """The key of a claim of two that has such a label."""
        labels = (("mood", self.UNKNOWN),)
        store.acquire("holder", Request("T", count=2, ttl_seconds=60, labels=labels))
        (found,) = store.gateway.read(read_all(store.keys.helds("T"))).answers
        return found.items[0].key

    def test_a_label_of_a_newer_python_is_shown_escaped(self, store: Access, labelled: str) -> None:
        lease = store.pool().resources[0].lease
        assert lease is not None
        ((key, shown),) = lease.labels
        assert key == "mood" and shown.endswith(self.SHOWN) and shown.isprintable()

    def test_nobody_is_hindered_by_it_and_it_stays_as_it_was_written(
        self, store: Access, labelled: str
    ) -> None:
        store.pools.remove_resources("T", [NAMES[0]], force=True)
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        assert json.loads(found.first.value)["labels"] == [["mood", self.UNKNOWN]]
        assert store.engine.renew("holder") == (NAMES[1],)
        assert store.engine.free("holder") == (NAMES[1],)

    @pytest.mark.parametrize("field", ["owner", "holder_identity", "labels"])
    def test_what_could_harm_a_terminal_is_escaped(
        self, store: Access, labelled: str, field: str
    ) -> None:
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        harmful = "host/\x1b[2J\u202e\ud800"
        record = json.loads(found.first.value)
        record[field] = [[harmful, harmful]] if field == "labels" else harmful
        store.gateway.commit((), [put(labelled, json.dumps(record))])
        shown = store.pool().resources[0]
        assert shown.lease is not None
        said = {"owner": shown.claim_key, "holder_identity": shown.lease.holder_identity}
        said["labels"] = "".join(*shown.lease.labels) if field == "labels" else ""
        assert "\\x1b[2J\\u202e\\ud800" in str(said[field])
        assert all(str(text).isprintable() for text in said.values())
        with pytest.raises(NotAllowed) as refused:
            store.pools.remove_resources("T", [NAMES[0]], force=False)
        assert str(refused.value).isprintable()

    def test_so_is_a_ticket_of_somebody_who_waits(self, store: Access) -> None:
        store.acquire("holder", Request("T", count=4))
        store.begin(f"{self.UNKNOWN}\x1b", Request("T"))
        (claim_key,) = eventually(store.queue)
        assert claim_key.endswith(f"{self.SHOWN}\\x1b")
        assert store.pool().queue[0].holder_identity.isprintable()
        store.engine.free("holder")

    @pytest.mark.parametrize("wrong", ["[" * 100_000, "7", "ticket", "acquire_time", "owner"])
    def test_what_is_no_record_is_refused_in_one_line(
        self, store: Access, labelled: str, wrong: str
    ) -> None:
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        record = json.loads(found.first.value)
        if wrong in record:
            wrong = json.dumps({**record, wrong: math.inf})
        store.gateway.commit((), [put(labelled, wrong)])
        with pytest.raises(CorruptState, match="can't be read") as refused:
            store.pool()
        assert str(refused.value).isprintable()


class TestSizes:
    def test_more_than_a_transaction_can_do_is_refused(self, store: Access) -> None:
        store.pools.add_resources("T", [f"U--{n:03d}" for n in range(100)])
        with pytest.raises(InvalidRequest, match=f"--count 61.*{MOST_AT_ONCE} at most"):
            store.acquire("me", Request("T", count=61))
        assert len(store.acquire("me", Request("T", count=MOST_AT_ONCE))) == MOST_AT_ONCE
        assert len(store.engine.free("me")) == MOST_AT_ONCE

    def test_many_that_are_held_one_by_one_are_taken_away_at_once(self, store: Access) -> None:
        names = [f"U--{n:03d}" for n in range(40)]
        store.pools.create_pool("U", names)
        for name in names:
            store.acquire(name, Request("U", name=name, ttl_seconds=60))
        store.pools.remove_resources("U", names, force=True)
        assert sorted(store.lost) == [(name, (name,)) for name in names]
        assert keys_left(store) == []

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
