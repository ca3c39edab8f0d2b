"""Many waiters of one process on etcd: what they share, and who of them is woken."""

from __future__ import annotations

import re
import resource
import select
import threading
from collections.abc import Iterator

import httpx
import pytest

from leasectl.backends.contract import Patience, Turn
from leasectl.errors import Cancelled
from leasectl.model import Claimant, Lease, Request
from leasectl.system.poll import Sleep
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.killing import FULL_SIZE
from tests.kit.recorded import NoJournal
from tests.kit.relay import Relay
from tests.kit.waits import eventually

NAMES = ["T--0", "T--1"]
MANY = 1000 if FULL_SIZE else 250


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
        self._journals: dict[str, NoJournal] = {}
        self._sleeps: dict[str, Sleep] = {}
        self.looks: dict[str, int] = {}
        self.granted: dict[str, tuple[Lease, ...]] = {}
        self.withdrawn: list[str] = []

    def begin(self, claim_key: str, request: Request) -> None:
        """Start an acquisition, up to its first sleep."""
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request)
        journal = self._journals[claim_key] = NoJournal()
        self._steps[claim_key] = self._access.backend.turn(claimant, journal, Patience())
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
        except StopIteration:
            self.granted[claim_key] = self._journals[claim_key].leases or ()
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
    waiting = ("leasectl-keep-alives", "leasectl-watch")
    return sorted(each.name for each in threading.enumerate() if each.name in waiting)


def streams(etcd: EtcdServer) -> int:
    """How many streams of watches the server has."""
    metrics = httpx.get(f"{etcd.endpoints[0]}/metrics").text
    (found,) = re.findall(r"^etcd_debugging_mvcc_watch_stream_total (\d+)", metrics, re.MULTILINE)
    return int(found)


class TestManyWaiters:
    def test_any_number_of_waiters_take_two_threads_and_one_stream(
        self, etcd: EtcdServer, store: Access, prefix: str, enough_descriptors: None
    ) -> None:
        eventually(lambda: threads() == [] and streams(etcd) == 0, what="other tests end")
        crowd = Crowd(Access(etcd.endpoints, prefix))
        for number in range(MANY):
            crowd.begin(f"w{number:04d}", Request("T"))
        crowd.run(0.1)  # the first listened for itself as long as it was alone
        assert threads() == ["leasectl-keep-alives", "leasectl-watch"]
        assert streams(etcd) == 1
        assert store.queue() == [f"w{number:04d}" for number in range(MANY)]
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
        assert threads() == ["leasectl-keep-alives", "leasectl-watch"]

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
        # Where one was late, as on a busy machine, the watch has begun anew before.
        eventually(
            lambda: between.paths[busy:][-40:] == 40 * ["/v3/lease/keepalive"], what="keep-alives"
        )
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

    def test_nobody_frees_what_was_claimed_here_with_another_claim_key(self, store: Access) -> None:
        assert store.engine.free("other", NAMES) == ()
        assert store.engine.free("holder", NAMES) == tuple(NAMES)
