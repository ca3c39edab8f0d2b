"""Many waiters of one process on etcd: what they share, and who of them is woken."""

from __future__ import annotations

import re
import resource
import select
import threading
from collections.abc import Iterator, Sequence

import httpx
import pytest

from leasectl.backends.contract import Patience, Turn
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.waiting.listeners import Listeners
from leasectl.engines.etcd.waiting.targets import WatchTarget, at_the_head, behind
from leasectl.errors import Cancelled
from leasectl.model import Claimant, Lease, Request
from leasectl.system.poll import Sleep
from tests.kit.etcd.access import Access
from tests.kit.etcd.relay import Relay
from tests.kit.etcd.server import EtcdServer
from tests.kit.journal import NoJournal
from tests.kit.support import eventually

NAMES = ["T--0", "T--1"]


class Crowd:
    """Waiters that one loop drives, as a server's.

    Args:
        access: What they have of the store.

    Attributes:
        looks: How often each was woken.
        granted: What each got, in the order of the grants.
        withdrawn: Who was told that its request was released while it waited.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._steps: dict[str, Turn] = {}
        self._sleeps: dict[str, Sleep] = {}
        self.looks: dict[str, int] = {}
        self.granted: dict[str, tuple[Lease, ...]] = {}
        self.withdrawn: list[str] = []

    def begin(self, claim_key: str, request: Request) -> None:
        """Start an acquisition, up to its first sleep."""
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request)
        self._steps[claim_key] = self._access.backend.turn(claimant, NoJournal(), Patience())
        self.looks[claim_key] = 0
        self._go_on(claim_key, None)

    def run(self, seconds: float = 0.0) -> list[str]:
        """Wait until somebody is woken and have all who were look again; returns who."""
        claim_keys = {
            fd: claim_key for claim_key, wanted in self._sleeps.items() for fd in wanted.fds
        }
        poll = select.poll()
        for fd in claim_keys:
            poll.register(fd, select.POLLIN)
        woken = [(claim_keys[fd], fd) for fd, _ in poll.poll(int(seconds * 1000))]
        for claim_key, fd in woken:
            self.looks[claim_key] += 1
            self._go_on(claim_key, {fd})
        return [claim_key for claim_key, _ in woken]

    def close(self) -> None:
        """End all waits; who is last in the queue goes first, so that nobody moves up."""
        for claim_key in reversed(list(self._sleeps)):
            del self._sleeps[claim_key]
            self._steps[claim_key].close()

    def _go_on(self, claim_key: str, woken: set[int] | None) -> None:
        steps = self._steps[claim_key]
        self._sleeps.pop(claim_key, None)
        try:
            self._sleeps[claim_key] = next(steps) if woken is None else steps.send(woken)
        except StopIteration as end:
            self.granted[claim_key] = end.value
        except Cancelled:
            self.withdrawn.append(claim_key)


@pytest.fixture
def store(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a pool of two, both of them held."""
    access = Access(etcd.endpoints, prefix)
    access.pools.create_pool("T", NAMES)
    access.acquire("holder", Request("T", count=2))
    return access


@pytest.fixture
def crowd(between: Relay, prefix: str) -> Iterator[Crowd]:
    """Waiters on the same prefix whose requests are counted."""
    crowd = Crowd(Access([between.endpoint], prefix))
    yield crowd
    crowd.close()


@pytest.fixture
def enough_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def threads() -> list[str]:
    """Those that hear for waiters."""
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("leasectl"))


def streams(etcd: EtcdServer) -> int:
    """How many streams of watches the server has."""
    metrics = httpx.get(f"{etcd.endpoints[0]}/metrics").text
    (found,) = re.findall(r"^etcd_debugging_mvcc_watch_stream_total (\d+)", metrics, re.MULTILINE)
    return int(found)


class TestManyWaiters:
    def test_a_thousand_waiters_take_two_threads_and_one_stream(
        self, etcd: EtcdServer, store: Access, prefix: str, enough_descriptors: None
    ) -> None:
        eventually(lambda: threads() == [] and streams(etcd) == 0, what="other tests end")
        crowd = Crowd(Access(etcd.endpoints, prefix))
        for number in range(1000):
            crowd.begin(f"w{number:04d}", Request("T"))
        crowd.run(0.1)  # the first listened for itself as long as it was alone
        assert threads() == ["leasectl_keep_alive", "leasectl_watch"]
        assert streams(etcd) == 1
        assert store.queue() == [f"w{number:04d}" for number in range(1000)]
        looks = sum(crowd.looks.values())
        store.engine.free("holder", NAMES[:1])
        eventually(lambda: crowd.run(0.1) and crowd.granted)
        assert list(crowd.granted) == ["w0000"]
        assert sum(crowd.looks.values()) - looks <= 2  # its own, and the next one's, if at all yet
        crowd.close()

    def test_the_last_waiters_end_ends_the_threads(self, store: Access, crowd: Crowd) -> None:
        eventually(lambda: threads() == [], what="those of other tests end")
        for claim_key in ("first", "second"):
            crowd.begin(claim_key, Request("T"))
        store.engine.free("holder")
        eventually(lambda: crowd.run(0.1) and len(crowd.granted) == 2)
        eventually(lambda: threads() == [])
        crowd.begin("third", Request("T"))
        assert threads() == ["leasectl_keep_alive", "leasectl_watch"]

    def test_who_need_not_wait_starts_no_thread(self, store: Access, crowd: Crowd) -> None:
        eventually(lambda: threads() == [], what="those of other tests end")
        store.engine.free("holder")
        crowd.begin("me", Request("T"))
        assert (list(crowd.granted), threads()) == (["me"], [])

    def test_a_ticket_that_goes_wakes_the_one_behind_it_and_nobody_else(
        self, store: Access, crowd: Crowd
    ) -> None:
        claim_keys = [f"w{number}" for number in range(8)]
        for claim_key in claim_keys:
            crowd.begin(claim_key, Request("T", count=2))
        while crowd.run(0.1):
            pass  # the first listened alone before, and looks once when the others come
        before = dict(crowd.looks)
        store.engine.withdraw("w3")
        eventually(lambda: crowd.run(0.1) and "w3" in crowd.withdrawn)
        while crowd.run(0.1):
            pass
        assert {
            claim_key for claim_key in claim_keys if crowd.looks[claim_key] > before[claim_key]
        } == {"w3", "w4"}

    def test_what_is_released_wakes_the_head_and_nobody_else(
        self, store: Access, crowd: Crowd
    ) -> None:
        for number in range(8):
            crowd.begin(f"w{number}", Request("T", count=2))
        while crowd.run(0.1):
            pass
        store.engine.free("holder", NAMES[:1])
        looked = [claim_key for _ in range(3) for claim_key in crowd.run(0.1)]
        assert set(looked) == {"w0"}
        assert crowd.granted == {}

    def test_waiters_of_many_pools_share_the_stream(self, store: Access, crowd: Crowd) -> None:
        for number in range(5):
            store.pools.create_pool(f"P{number}", [f"P{number}--0"])
            store.acquire(f"h{number}", Request(f"P{number}"))
            crowd.begin(f"a{number}", Request(f"P{number}"))
            crowd.begin(f"b{number}", Request(f"P{number}"))
        for number in range(5):
            store.engine.free(f"h{number}")
        eventually(lambda: crowd.run(0.1) is not None and len(crowd.granted) == 5)
        assert sorted(crowd.granted) == [f"a{number}" for number in range(5)]

    def test_idle_waiters_make_no_request_but_their_keep_alives(
        self, store: Access, between: Relay, crowd: Crowd
    ) -> None:
        for number in range(10):
            crowd.begin(f"w{number}", Request("T", ttl_seconds=2))
        while crowd.run(0.3):
            pass
        busy = len(between.paths)
        # More of them than would fit into one ttl: the tickets are still there because of them.
        eventually(lambda: len(between.paths) >= busy + 40, what="keep-alives")
        assert set(between.paths[busy:]) == {"/v3/lease/keepalive"}
        assert (crowd.run(), len(store.queue())) == ([], 10)

    def test_all_look_again_after_a_compaction_in_mid_watch(
        self, etcd: EtcdServer, store: Access, between: Relay, crowd: Crowd
    ) -> None:
        for number in range(3):
            crowd.begin(f"w{number}", Request("T"))
        while crowd.run(0.1):
            pass
        between.cut()
        store.engine.free("holder", NAMES[:1])
        store.engine.withdraw("w1")
        body = {"revision": str(store.gateway.read().revision)}
        httpx.post(f"{etcd.endpoints[0]}/v3/kv/compaction", json=body).raise_for_status()
        between.mend()
        woken: set[str] = set()
        while len(woken) < 3:
            woken.update(crowd.run(10))
        assert (list(crowd.granted), crowd.withdrawn) == (["w0"], ["w1"])
        store.engine.free("holder")
        eventually(lambda: crowd.run(0.1) and "w2" in crowd.granted)


class TestWhatIsKnown:
    """What saves a look is only a guess; what has happened since is found by looking."""

    def test_what_was_freed_and_is_gone_again_is_not_granted(
        self, store: Access, crowd: Crowd
    ) -> None:
        crowd.begin("me", Request("T"))
        store.engine.free("holder", NAMES[:1])
        store.pools.remove_resources("T", NAMES[:1], force=False)
        eventually(lambda: crowd.run(0.1))
        assert crowd.granted == {}
        store.engine.free("holder")
        eventually(lambda: crowd.run(0.1) and crowd.granted)
        assert [lease.name for lease in crowd.granted["me"]] == NAMES[1:]

    def test_a_grant_of_what_was_freed_takes_one_request(
        self, store: Access, between: Relay, crowd: Crowd
    ) -> None:
        crowd.begin("me", Request("T", count=2))
        eventually(lambda: between.paths[-1] == "/v3/watch")
        before = len(between.paths)
        store.engine.free("holder")
        eventually(lambda: crowd.run(0.1) and crowd.granted)
        assert between.paths[before:] == ["/v3/kv/txn"]
        assert [lease.name for lease in crowd.granted["me"]] == NAMES

    def test_who_has_lost_a_claim_unheard_frees_nobody_elses(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        elsewhere = Access(etcd.endpoints, prefix)
        assert elsewhere.engine.free("holder") == tuple(NAMES)
        elsewhere.acquire("next", Request("T", count=2))
        assert store.engine.free("holder", NAMES) == ()
        assert store.held() == NAMES

    def test_what_is_given_back_in_parts_is_given_back_once(self, store: Access) -> None:
        assert store.engine.free("holder", NAMES[1:]) == (NAMES[1],)
        assert store.engine.free("holder", NAMES) == (NAMES[0],)
        assert store.engine.free("holder", NAMES) == ()
        assert store.held() == []

    def test_nobody_frees_what_another_owner_claimed_here(self, store: Access) -> None:
        assert store.engine.free("other", NAMES) == ()
        assert store.engine.free("holder", NAMES) == tuple(NAMES)


class Sleeper:
    """Notes what it is woken with."""

    def __init__(self) -> None:
        self.woken: list[tuple[KeyValue, ...]] = []

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        self.woken.append(tuple(news))


KEYS = Keys("/p", "here")
TICKETS, FREES, ALIVES, POOL = at_the_head(KEYS, "T", 1, 0).shared


def target(number: int, revision: int) -> WatchTarget:
    """What the so-manieth ticket of a queue waits for after a look at a revision."""
    if number == 0:
        return at_the_head(KEYS, "T", 0, revision)
    return behind(KEYS, "T", number, KEYS.ticket("T", number - 1), revision)


def event(key: str, revision: int) -> KeyValue:
    return KeyValue(key, "", 0, revision)


class TestListeners:
    def test_who_is_alone_has_watches_for_its_own_target(self) -> None:
        listeners = Listeners()
        assert listeners.put(Sleeper(), target(1, revision=5))
        assert listeners.revisions == dict.fromkeys(target(1, 5).watched, 5)

    def test_one_more_waiter_of_the_same_pool_changes_nothing_about_the_stream(self) -> None:
        listeners = Listeners()
        assert listeners.put(Sleeper(), target(0, revision=5))
        assert listeners.put(Sleeper(), target(1, revision=6))
        assert set(listeners.revisions) == {TICKETS, FREES, ALIVES, POOL}
        assert not any(listeners.put(Sleeper(), target(n, revision=6 + n)) for n in range(2, 100))

    def test_who_is_left_alone_goes_on_with_the_stream_that_there_is(self) -> None:
        listeners, first, second = Listeners(), Sleeper(), Sleeper()
        listeners.put(first, target(0, revision=5))
        listeners.put(second, target(1, revision=5))
        listeners.remove(first)
        assert not listeners.put(second, target(0, revision=7))

    def test_who_has_looked_before_what_the_stream_has_told_looks_again(self) -> None:
        listeners, late, head = Listeners(), Sleeper(), Sleeper()
        listeners.put(head, target(0, revision=5))
        listeners.put(Sleeper(), target(1, revision=5))
        listeners.tell(TICKETS, [event(KEYS.ticket("T", 77), 9)])
        listeners.put(late, target(2, revision=8))
        assert late.woken == [()]

    def test_what_the_stream_tells_is_no_news_to_who_has_looked_since(self) -> None:
        listeners, second = Listeners(), Sleeper()
        listeners.put(Sleeper(), target(0, revision=5))
        listeners.put(second, target(1, revision=9))
        listeners.tell(TICKETS, [event(KEYS.ticket("T", 0), 9)])
        assert second.woken == []

    def test_one_watch_that_is_ahead_hides_nothing_that_another_still_has_to_tell(self) -> None:
        listeners, head, second = Listeners(), Sleeper(), Sleeper()
        listeners.put(head, target(0, revision=5))
        listeners.put(second, target(1, revision=5))
        listeners.tell(FREES, [event(KEYS.free("T", 1, "T--0"), 9)])
        gone = event(KEYS.ticket("T", 0), 8)
        listeners.tell(TICKETS, [gone])
        assert second.woken == [(gone,)]
        assert (listeners.revisions[TICKETS], listeners.revisions[FREES]) == (8, 9)

    def test_of_a_thousand_only_the_one_behind_is_woken_by_a_ticket_that_goes(self) -> None:
        listeners, sleepers = Listeners(), [Sleeper() for _ in range(1000)]
        for number, sleeper in enumerate(sleepers):
            listeners.put(sleeper, target(number, revision=5))
        before = [len(sleeper.woken) for sleeper in sleepers]
        gone = event(KEYS.ticket("T", 500), 6)
        listeners.tell(TICKETS, [gone])
        news = [sleeper.woken[known:] for sleeper, known in zip(sleepers, before)]
        assert {number: each for number, each in enumerate(news) if each} == {
            500: [(gone,)],
            501: [(gone,)],
        }

    def test_who_was_woken_is_left_alone_until_it_listens_again(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        for revision in (6, 7):
            listeners.tell(FREES, [event(KEYS.free("T", revision, "T--0"), revision)])
        assert len(head.woken) == 1
        listeners.put(head, target(0, revision=7))
        listeners.tell(FREES, [event(KEYS.free("T", 8, "T--0"), 8)])
        assert len(head.woken) == 2

    def test_the_end_of_a_claim_does_not_hide_what_it_frees(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        freed = event(KEYS.free("T", 1, "T--0"), 6)
        listeners.tell(ALIVES, [event(KEYS.alive("T", 9), 6)])
        listeners.tell(FREES, [freed])
        assert head.woken == [(), (freed,)]

    def test_after_a_compaction_all_look_again_and_the_watches_begin_there(self) -> None:
        listeners, sleepers = Listeners(), [Sleeper() for _ in range(3)]
        for number, sleeper in enumerate(sleepers):
            listeners.put(sleeper, target(number, revision=5))
        listeners.have_all_look()
        assert [sleeper.woken for sleeper in sleepers] == [[()]] * 3
        assert listeners.revisions == {}
        assert listeners.put(sleepers[1], target(1, revision=50))
        assert listeners.revisions == dict.fromkeys((TICKETS, FREES, ALIVES, POOL), 50)
        assert not listeners.put(sleepers[2], target(2, revision=51))
        assert [sleeper.woken for sleeper in sleepers] == [[()]] * 3

    def test_a_new_stream_begins_where_the_first_begins_that_it_is_for(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        # Another acquisition, hours later, with a ticket of its own.
        listeners.remove(head)
        listeners.put(Sleeper(), at_the_head(KEYS, "T", 99, 500))
        assert set(listeners.revisions.values()) == {500}

    def test_who_still_has_something_to_be_told_misses_nothing_by_a_new_stream(self) -> None:
        listeners, waiting = Listeners(), Sleeper()
        listeners.put(Sleeper(), target(0, revision=5))
        listeners.put(waiting, target(1, revision=5))
        assert listeners.put(Sleeper(), at_the_head(KEYS, "U", 7, 30))
        assert (waiting.woken, listeners.revisions[TICKETS]) == ([], 5)
