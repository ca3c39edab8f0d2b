"""What a pool's grants owe its pace, as each waiter counts it for itself."""

from __future__ import annotations

import random

import pytest

from leasectl.engines.etcd.gateway.requests import KeyValue, read, read_all
from leasectl.engines.etcd.queues.pace import EtcdPaces, GrantWatch, Owed, read_owed
from leasectl.engines.etcd.waiting.waiter import EtcdWaiter
from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.errors import NoLease
from leasectl.model import Claimant, Request
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import etcd_server
from tests.kit.pacing import too_fast
from tests.kit.relay import Relay
from tests.kit.waits import eventually, result_of

PACE = PoolSettings(pace_seconds=10.0)
BURST = PoolSettings(pace_seconds=10.0, burst=3)
ONE = Request("T")


class TestWhatIsOwed:
    def test_after_one_grant_the_next_is_a_pace_later(self) -> None:
        owed = Owed(PACE, level=Owed(PACE).after_grant(0.0), since=7)
        assert [owed.paid_in(seconds) for seconds in (0.0, 4.0, 10.0, 99.0)] == [10.0, 6.0, 0, 0]

    def test_a_burst_is_used_up_and_comes_back(self) -> None:
        level = 0.0
        for _ in range(3):
            assert Owed(BURST, level=level).paid_in(0.0) == 0
            level = Owed(BURST, level=level).after_grant(0.0)
        owed = Owed(BURST, level=level)
        assert [owed.paid_in(seconds) for seconds in (0.0, 10.0)] == [10.0, 0.0]
        assert owed.after_grant(10.0) == 3.0
        assert owed.after_grant(25.0) == 1.5
        assert [owed.is_paid(seconds) for seconds in (29.0, 30.0)] == [False, True]

    def test_fewer_at_once_are_owed_no_more_than_that(self) -> None:
        owed = Owed(PACE, level=3.0)
        assert owed.paid_in(0.0) == 10.0
        assert owed.after_grant(10.0) == 1.0
        assert owed.whole_seconds == 10
        assert owed._replace(level=1e308).whole_seconds == 10

    def test_a_pool_without_a_pace_is_owed_nothing(self) -> None:
        pace = KeyValue("/p/pace/T", "3", 5, 5)
        assert read_owed(NO_SETTINGS, pace, None).paid_in(0.0) == 0

    def test_where_the_key_has_gone_nothing_is_owed(self) -> None:
        grants = KeyValue("/p/grants/T", "3", 5, 9)
        assert read_owed(PACE, None, grants) == Owed(PACE, since=9)


class TestGrantWatch:
    def test_it_counts_from_when_it_first_knew(self) -> None:
        grants = GrantWatch()
        grants.note(5, 100.0)
        grants.note(5, 103.0)
        assert (grants.last, grants.seconds(5, 110.0)) == (5, 10.0)

    def test_another_grant_begins_anew(self) -> None:
        grants = GrantWatch()
        grants.note(5, 100.0)
        grants.note(6, 104.0)
        grants.note(5, 105.0)
        assert grants.seconds(6, 110.0) == 6.0

    def test_of_a_grant_that_it_has_not_seen_as_the_last_it_has_counted_nothing(self) -> None:
        grants = GrantWatch()
        grants.note(5, 100.0)
        assert [grants.seconds(revision, 110.0) for revision in (4, 6)] == [0.0, 0.0]

    def test_who_comes_later_takes_over_what_was_counted(self) -> None:
        grants = GrantWatch()
        grants.note(5, 100.0)
        grants.catch_up(5, 93.0)
        grants.catch_up(5, 98.0)
        grants.catch_up(4, 10.0)
        assert grants.seconds(5, 100.0) == 7.0


@pytest.mark.parametrize("seed", range(8))
def test_never_is_it_faster_however_late_who_hears_of_what(seed: int) -> None:
    """Waiters whose clocks have nothing in common, that hear late, and whose claims come late."""
    rng = random.Random(seed)
    settings = PoolSettings(pace_seconds=1.0, burst=rng.choice((1, 2, 4)))
    clocks = [rng.random() * 1000 for _ in range(5)]  # ahead by so much
    watches = [GrantWatch() for _ in clocks]
    now, level, revision, times = 0.0, 0.0, 1, [0.0]
    level = Owed(settings, level).after_grant(0.0)
    while len(times) < 200:
        now += rng.random() * 0.2
        chosen = rng.randrange(len(clocks))
        grants, mine = watches[chosen], now + clocks[chosen]
        grants.note(revision, mine)  # some time after it was made
        owed = Owed(settings, level, since=revision)
        counted = grants.seconds(revision, mine)
        if not owed.paid_in(counted):
            now += rng.random() * rng.choice((0.0, 3.0))  # until it is carried out
            level, revision = owed.after_grant(counted), revision + 1
            times.append(now)
    assert too_fast(times, pace=1.0, burst=settings.burst, slack=1e-5) == []


def put_ticket(store: Access, claim_key: str, request: Request) -> EtcdWaiter:
    waiter = store.engine.waiter(Claimant(claim_key, f"{claim_key}@host", request), until=None)
    waiter.enqueue()
    return waiter


class TestInEtcd:
    def paced(self, store: Access, settings: PoolSettings = PACE) -> Access:
        store.pools.change_settings("T", settings)
        return store

    def pace_key(self, store: Access) -> KeyValue | None:
        return store.gateway.read(read(store.keys.pace("T"))).answers[0].first

    def refuse(self, store: Access, claim_key: str = "other") -> None:
        with pytest.raises(NoLease, match="next grant in"):
            store.acquire(claim_key, ONE, wait=0)

    def test_who_is_granted_something_with_nobody_behind_has_etcd_count(
        self, store: Access
    ) -> None:
        self.paced(store).acquire("me", ONE)
        key = self.pace_key(store)
        assert key is not None
        assert (key.value, key.etcd_lease_id != 0) == ("1", True)
        store.gateway.revoke(key.etcd_lease_id)  # as etcd does it
        assert len(store.acquire("other", ONE, wait=0)) == 1

    def test_if_it_was_killed_before_who_comes_has_it_count(self, store: Access) -> None:
        self.paced(store).acquire("me", ONE)
        store.pools.change_settings("T", PACE._replace(pace_seconds=4.0))  # as if nobody had
        key = self.pace_key(store)
        assert key is not None and key.etcd_lease_id == 0
        self.refuse(store)
        key = self.pace_key(store)
        assert key is not None and key.etcd_lease_id != 0

    def test_what_was_seen_before_another_grant_is_neither_counted_nor_settled(
        self, store: Access
    ) -> None:
        self.paced(store, PACE._replace(pace_seconds=0.5)).acquire("me", ONE)
        before = self.owed(store)
        store.acquire("other", ONE)
        store.pools.change_settings("T", PACE)
        now = self.pace_key(store)
        paces = EtcdPaces(store.gateway, store.keys)
        current = self.owed(store)
        for outdated in (
            before,
            current._replace(written=before.written),
            current._replace(since=before.since),  # a grant of an older version says no more
        ):
            paces.have_counted("T", outdated)
            paces.settle("T", outdated)
        assert self.pace_key(store) == now

    def test_who_has_counted_to_the_end_says_so_to_who_passes_it(self, store: Access) -> None:
        self.paced(store).acquire("me", ONE)
        head = put_ticket(store, "head", ONE)
        head.claim()
        store.pools.change_settings("T", PACE._replace(pace_seconds=1.0))  # nobody counts
        better = put_ticket(store, "better", ONE._replace(priority=1))
        eventually(lambda: head.standing().next_grant_at is None)
        assert better.claim().next_grant_at is not None
        assert head.claim().is_behind
        assert self.pace_key(store) is None
        assert better.claim().leases

    def owed(self, store: Access) -> Owed:
        keys = store.keys
        pace, grants = store.gateway.read(read(keys.pace("T")), read(keys.grants("T"))).answers
        return read_owed(store.pool().settings, pace.first, grants.first)

    def test_who_comes_later_asks_how_much_etcd_has_counted(self, store: Access) -> None:
        self.paced(store, PACE._replace(pace_seconds=4.0)).acquire("me", ONE)
        key = self.pace_key(store)
        assert key is not None
        eventually(lambda: store.gateway.time_left(key.etcd_lease_id) <= 2.0)
        assert store.pool().next_grant_in_seconds <= 3.0
        assert len(store.acquire("other", ONE, wait=3.5)) == 1

    def test_of_a_burst_no_more_is_owed_than_etcd_has_counted(self, store: Access) -> None:
        self.paced(store, PoolSettings(pace_seconds=4.0, burst=2)).acquire("me", ONE)
        first = self.pace_key(store)
        assert first is not None
        eventually(lambda: store.gateway.time_left(first.etcd_lease_id) < 2.0)
        store.acquire("other", ONE)
        second = self.pace_key(store)
        assert second is not None
        assert 1.0 < float(second.value) <= 1.8

    def test_a_lease_of_another_time_counts_for_nothing(self, store: Access) -> None:
        self.paced(store).acquire("me", ONE)
        store.pools.change_settings("T", PoolSettings(pace_seconds=100.0))
        key = self.pace_key(store)
        assert key is not None and key.etcd_lease_id == 0
        assert store.pool().next_grant_in_seconds == 100.0

    def test_without_a_pace_nothing_is_kept_of_it(self, store: Access) -> None:
        self.paced(store).acquire("me", ONE)
        store.pools.change_settings("T", NO_SETTINGS)
        assert self.pace_key(store) is None
        store.acquire("other", ONE)
        assert self.pace_key(store) is None

    def test_one_that_waits_behind_counts_as_well(self, store: Access) -> None:
        """So that the death of the head costs no second pace."""
        self.paced(store, PACE._replace(pace_seconds=1.5)).acquire("me", ONE)
        head = put_ticket(store, "head", ONE)
        head.claim()
        pending = store.begin("behind", ONE)
        eventually(lambda: len(store.queue()) == 2)
        eventually(lambda: head.claim().leases)
        eventually(lambda: store.held() == ["T--0", "T--1"])
        head.close()
        assert len(result_of(pending)) == 1

    def test_waiter_counts_anew_after_a_restore_to_an_earlier_grant(self) -> None:
        """Nobody else counts: the grant had a waiter behind it, and etcd needn't for so short."""
        with etcd_server() as server:
            store = Access(server.endpoints, "/p")
            store.pools.create_pool("T", NAMES)
            self.paced(store).acquire("me", ONE)
            head = put_ticket(store, "head", ONE)
            head.claim()
            store.pools.change_settings("T", PACE._replace(pace_seconds=0.5))
            better = put_ticket(store, "better", ONE._replace(priority=1))
            eventually(lambda: better.claim().leases)
            copy = server.keep_copy()
            best = put_ticket(store, "best", ONE._replace(priority=1))
            eventually(lambda: best.claim().leases)
            assert head.claim().next_grant_at is not None  # it has seen that
            server.restore(copy)
            eventually(lambda: head.claim().leases)

    def test_one_for_a_name_that_somebody_else_got_keeps_those_behind_from_nothing(
        self, store: Access
    ) -> None:
        self.paced(store, PACE._replace(pace_seconds=0.7)).acquire("me", ONE)
        particular = Request("T", name="T--1")
        first = store.begin("first", particular)
        eventually(lambda: store.queue() == ["first"])
        store.begin("second", particular)
        eventually(lambda: len(store.queue()) == 2)
        last = store.begin("last", ONE)
        result_of(first)
        assert [lease.name for lease in result_of(last)] == ["T--2"]
        store.engine.withdraw("second")

    def test_a_pool_without_one_costs_no_request_more(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        waiter = Access([between.endpoint], prefix)

        def fewest() -> int:
            """Now and then somebody looks after the events, too."""
            needed = []
            for number in range(4):
                before = len(between.paths)
                waiter.acquire(f"holder-{number}", ONE)
                needed.append(len(between.paths) - before)
                waiter.engine.free(f"holder-{number}")
            return min(needed)

        plain = fewest()
        assert plain == 3  # two for the ticket, a claim
        store.pools.change_settings("T", PACE._replace(pace_seconds=0.001))
        assert fewest() == plain + 2

    def test_many_at_once_with_a_priority_at_a_pace_are_one_claim(self, store: Access) -> None:
        names = [f"T--more-{number}" for number in range(60)]
        store.pools.add_resources("T", names)
        self.paced(store, PACE._replace(aging_seconds=1.0))
        leases = store.acquire("me", Request("T", count=60, priority=5))
        assert len(leases) == 60
        assert len({lease.grant for lease in leases}) == 1
        left = store.gateway.read(read_all(store.keys.ranks("T"))).answers[0].items
        assert left == ()
