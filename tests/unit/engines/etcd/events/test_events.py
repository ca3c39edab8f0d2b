"""Events in etcd, against a real server: their buckets, their order, and who follows them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from leasectl.engines.etcd.events import (
    NUMBERS_PER_REVISION,
    EtcdEvents,
    encode_event,
    parse_bucket,
    parse_event,
)
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import KeyValue, absent, delete, put, read, read_all
from leasectl.errors import CorruptState
from leasectl.model import Request
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Kept, Missed
from leasectl.system.poll import is_readable
from leasectl.text.naming import reserved_type
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.event_writer import SMALLEST, Writer, buckets, told
from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay, relay
from tests.kit.story import story_of
from tests.kit.support import ManualClock
from tests.kit.waits import eventually, wait_readable

HOUR = 3600.0


@pytest.fixture
def access(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a prefix where nothing is."""
    return Access(etcd.endpoints, prefix)


def test_the_latest_are_whole_wherever_what_is_read_at_once_ends(access: Access) -> None:
    events = EtcdEvents(access.gateway, clock=ManualClock().clock)
    for number, size in enumerate((40, 5, 5, 5, 5, 40)):
        key = f"{access.keys.prefix}test/{number}"
        types = itertools.cycle(("b", "a"))  # keys sort by them, and numbers don't
        some = [Event(0, 1.0, "queued", next(types)) for _ in range(size)]
        assert events.commit([absent(key)], [put(key, "")], events=some).succeeded
    newest_first = list(access.events.read())[::-1]
    assert len(newest_first) == 100
    for number in range(101):
        assert access.events.latest(ALL_EVENTS, number) == newest_first[:number], number
        assert (
            access.events.latest(EventFilter(type="a"), number)
            == [each for each in newest_first if each.type == "a"][:number]
        )


class TestBuckets:
    def test_an_old_one_is_followed_by_another(self, access: Access) -> None:
        writer = Writer(access, Kept(HOUR, 10_000))
        for _ in range(3):
            writer.write(2)
            writer.time.advance(HOUR / 32 + 1)
        assert buckets(access) == [2, 2, 2]
        assert told(access) == list(range(6))

    def test_what_is_kept_is_the_newest_and_not_much_more_than_asked_for(
        self, access: Access
    ) -> None:
        kept = Kept(HOUR, 3 * SMALLEST)
        Writer(access, kept).write(10 * SMALLEST)
        numbers = told(access)
        assert numbers == list(range(numbers[0], 10 * SMALLEST))
        assert kept.number <= len(numbers) <= kept.number + 2 * SMALLEST

    def test_what_is_too_old_goes_although_etcd_would_keep_it(self, access: Access) -> None:
        writer = Writer(access, Kept(HOUR, 10_000))
        writer.write(3)
        for _ in range(40):
            writer.time.advance(HOUR / 32 + 1)
            writer.write()
        assert told(access)[0] > 3
        assert told(access)[-1] == 42

    def test_a_clock_that_is_far_ahead_ends_few(self, access: Access) -> None:
        writer = Writer(access, Kept(HOUR, 10_000))
        for _ in range(8):
            writer.write()
            writer.time.advance(HOUR / 32 + 1)
        writer.time.advance(1000 * HOUR)
        writer.write()
        assert told(access) == list(range(2, 9))

    def test_how_long_they_are_kept_stays_as_it_was_for_who_does_not_say(
        self, access: Access
    ) -> None:
        writer = Writer(access, Kept(2 * HOUR, 77))
        writer.write()
        other = Writer(access, first=1)
        other.time.advance(HOUR)
        other.write()
        (found,) = access.gateway.read(read_all(access.keys.buckets)).answers
        assert [parse_bucket(kv).kept for kv in found.items] == [Kept(2 * HOUR, 77)] * 2

    def test_with_none_to_write_nothing_is_asked_but_what_there_is_to_do(
        self, between: Relay, prefix: str
    ) -> None:
        through = Access([between.endpoint], prefix)
        events = EtcdEvents(through.gateway, clock=ManualClock().clock)
        of_work = Event(0, 0.0, "granted", reserved_type("0" * 64))  # of which none is written
        for told_of in ([], [of_work]):
            assert events.commit([], [put(f"{prefix}/a", "")], events=told_of).succeeded
        assert len(between.paths) == 2
        assert buckets(through) == []

    def test_the_last_number_is_that_of_the_bucket_before_while_one_is_empty(
        self, access: Access
    ) -> None:
        Writer(access, Kept(HOUR, 10_000)).write(3)
        last = access.events.last_number()
        events = EtcdEvents(access.gateway, clock=ManualClock(wall=2e9).clock)
        key = f"{access.keys.prefix}never"
        refused = [absent(access.keys.bucket_now)]
        assert not events.commit(refused, [put(key, "")], events=[]).succeeded
        writer = Writer(access, first=0)
        writer.time.advance(HOUR)
        with pytest.raises(AssertionError):
            writer.write()  # the key is there already: the bucket is made, the event isn't
        assert len(buckets(access)) == 2
        assert access.events.last_number() == last


class TestChangeOfBucket:
    """Somebody writes who doesn't know yet that the bucket is another, or has gone."""

    def test_it_is_written_to_the_next_and_once(self, access: Access) -> None:
        early, late = Writer(access, Kept(HOUR, 10_000)), Writer(access, first=100)
        early.write(2)
        late.write()
        early.time.advance(HOUR / 2)
        early.write()
        late.write()
        assert told(access) == [0, 1, 100, 2, 101]

    def test_a_bucket_that_somebody_has_ended_is_replaced(self, access: Access) -> None:
        writer = Writer(access, Kept(HOUR, 10_000))
        writer.write(2)
        (now,) = access.gateway.read(read(access.keys.bucket_now)).answers
        assert now.first is not None
        access.gateway.revoke(now.first.etcd_lease_id)
        writer.write(2)
        assert told(access) == [2, 3]

    def test_leases_go_on_whoever_has_ended_it_when(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        """Before any request of an acquisition and a release."""
        through = Access([between.endpoint], prefix)
        number = at_most = 0
        while number <= at_most:
            number += 1
            first = len(between.paths)

            def end_it(at: int, _path: str, when: int = first + number) -> None:
                if at == when:
                    (now,) = store.gateway.read(read(store.keys.bucket_now)).answers
                    if now.first is not None:
                        store.gateway.revoke(now.first.etcd_lease_id)

            between.listen(before=end_it)
            leases = through.acquire("me", Request("T", count=2, ttl_seconds=60))
            assert through.engine.free("me") == tuple(lease.name for lease in leases)
            at_most = len(between.paths) - first
        assert store.held() == []
        assert at_most > 4


class TestForeignKeys:
    """Somebody else has written where events are."""

    @pytest.mark.parametrize("value", ["", "x", "{}", '{"bucket": "1"}', "[]", '{"bucket": null}'])
    def test_a_bucket_that_is_none_is_replaced(self, store: Access, value: str) -> None:
        store.gateway.commit((), [put(store.keys.bucket_now, value)])
        store.gateway.commit((), [put(store.keys.bucket("0"), value)])
        store.acquire("me", Request("T"))
        assert [event.kind for event in store.events.read()] == ["pool made", "queued", "granted"]

    def test_a_bucket_that_is_attached_to_nothing_is_replaced(self, store: Access) -> None:
        (now,) = store.gateway.read(read(store.keys.bucket_now)).answers
        assert now.first is not None
        store.gateway.commit((), [put(store.keys.bucket_now, now.first.value)])
        store.acquire("me", Request("T"))
        assert store.engine.free("me") == (NAMES[0],)
        assert story_of(store.events.read()).broken == []

    def test_events_that_are_none_are_left_out(self, store: Access) -> None:
        before = list(store.events.read())
        (now,) = store.gateway.read(read(store.keys.bucket_now)).answers
        assert now.first is not None
        bucket = parse_bucket(now.first).name
        good = json.loads(encode_event(Event(0, 1.0, "lost", "T")))
        wrongs: tuple[dict[str, object], ...] = (
            {"time": 1e300},
            {"time": "now"},
            {"kind": "\x1b[2Jlost"},
            {"kind": 7},
            {"names": ["a b"]},
            {"names": 5},
            {"fences": ["x"]},
            {"holder_identity": None},
            {"wait_seconds": float("nan")},
            {"count": "many"},
        )
        for number, wrong in enumerate(wrongs):
            key = store.keys.event(bucket, "T", f"{number:014x}")
            store.gateway.commit((), [put(key, json.dumps({**good, **wrong}))])
        store.gateway.commit((), [put(store.keys.event(bucket, "T", "no-number"), "{}")])
        store.gateway.commit((), [put(store.keys.event(bucket, "T", "f" * 14), "[]")])
        assert list(store.events.read()) == before

    def test_text_that_a_terminal_would_heed_is_escaped(self, store: Access) -> None:
        event = Event(0, 1.0, "lost", "T", holder_identity="a\x1b[2J", reason="b\n", by="c\r")
        kv = KeyValue(store.keys.event("0" * 20, "T", "0" * 14), encode_event(event), 5, 5)
        read_back = parse_event(kv)
        assert read_back.number == 5 * NUMBERS_PER_REVISION
        assert (read_back.holder_identity, read_back.reason) == ("a\\x1b[2J", "b\\n")
        assert read_back.by.isprintable()

    def test_what_is_of_a_later_version_is_shown(self) -> None:
        kv = KeyValue("/p/event/0/T/00000000000001", '{"time": 1, "kind": "moved", "new": 1}', 2, 2)
        assert parse_event(kv) == Event(2 * NUMBERS_PER_REVISION + 1, 1.0, "moved", "T")  # type: ignore[arg-type]
        with pytest.raises(CorruptState, match="can't be read"):
            parse_event(kv._replace(value='{"time": 1}'))


class TestReading:
    def test_only_the_buckets_are_read_that_may_have_what_is_wanted(
        self, etcd: EtcdServer, access: Access, between: Relay, prefix: str
    ) -> None:
        writer = Writer(access, Kept(32 * 5 * HOUR, 10_000))
        for _ in range(6):
            writer.write()
            writer.time.advance(6 * HOUR)
        through = Access([between.endpoint], prefix)
        dates = [event.time for event in access.events.read()]
        for wanted, requests in (
            (EventFilter(), 7),
            (EventFilter(since=dates[5] + 2 * HOUR), 2),
            (EventFilter(until=dates[0]), 2),
            (EventFilter(since=dates[2] - 2 * HOUR, until=dates[3]), 4),
        ):
            before = len(between.paths)
            found = list(through.events.read(wanted))
            assert found == list(filter(wanted.wants, access.events.read())), wanted
            assert len(between.paths) - before == requests, wanted
        before = len(between.paths)
        last = list(access.events.read())[-2].number
        assert [event.reason for event in through.events.read(after=last)] == ["5"]
        assert len(between.paths) - before == 3


class TestBeingBehind:
    """Who follows comes to buckets that are gone."""

    @staticmethod
    def bucket_by_bucket(access: Access) -> Writer:
        """Five buckets with two events each."""
        writer = Writer(access, Kept(HOUR, 10_000))
        for _ in range(5):
            writer.write(2)
            writer.time.advance(HOUR / 32 + 1)
        return writer

    @staticmethod
    def end(access: Access, *indices: int) -> None:
        (found,) = access.gateway.read(read_all(access.keys.buckets)).answers
        for index in indices:
            access.gateway.revoke(found.items[index].etcd_lease_id)

    @staticmethod
    def missed(access: Access, after: int) -> list[Missed]:
        missed: list[Missed] = []
        list(access.events.read(after=after, missed=missed.append))
        return missed

    def test_it_is_told_of_what_it_has_not_read_and_of_nothing_else(self, access: Access) -> None:
        self.bucket_by_bucket(access)
        numbers = [event.number for event in access.events.read()]
        dates = [event.time for event in access.events.read()]
        self.end(access, 0, 1)
        assert [len(self.missed(access, after)) for after in numbers] == [1] * 4 + [0] * 6
        (gone,) = self.missed(access, numbers[0])
        assert gone.number is None
        assert gone.until == dates[4]
        assert numbers[3] < gone.last_number < numbers[4]
        assert self.missed(access, gone.last_number) == []

    def test_it_is_told_of_one_in_between(self, access: Access) -> None:
        """Whose writer kept it for less long."""
        self.bucket_by_bucket(access)
        numbers = [event.number for event in access.events.read()]
        self.end(access, 2)
        assert [len(self.missed(access, after)) for after in numbers] == [1] * 6 + [0] * 4

    def test_it_is_told_where_nothing_is_left(self, access: Access) -> None:
        self.bucket_by_bucket(access)
        last = access.events.last_number()
        self.end(access, *range(5))
        (gone,) = self.missed(access, last)
        assert (gone.number, gone.until) == (None, None)

    def test_one_that_goes_while_it_reads_is_noticed(
        self, access: Access, between: Relay, prefix: str
    ) -> None:
        self.bucket_by_bucket(access)
        numbers = [event.number for event in access.events.read()]
        through = Access([between.endpoint], prefix)
        first = len(between.paths)

        def end_it(at: int, _path: str) -> None:
            if at == first + 3:  # all buckets, the first; and now the second
                self.end(access, 1)

        between.listen(before=end_it)
        missed: list[Missed] = []
        found = through.events.read(after=numbers[0], missed=missed.append)
        assert [event.number for event in found] == [numbers[1], *numbers[4:]]
        assert len(missed) == 1

    def test_what_was_quiet_for_long_is_not_taken_for_a_gap(
        self, etcd: EtcdServer, access: Access, prefix: str
    ) -> None:
        writer = self.bucket_by_bucket(access)
        reader = Access(etcd.endpoints, prefix)
        watch = reader.events.watch()
        try:
            last = reader.events.last_number()
            self.end(access, *range(5))
            writer.write()
            wait_readable(watch.fd)
            news_after = watch.clear()
            assert last < news_after < reader.events.last_number()
            assert len(self.missed(reader, last)) == 1
            assert self.missed(reader, news_after) == []
            assert told(reader, after=news_after) == [10]
        finally:
            watch.close()


class TestWatching:
    @pytest.fixture
    def members(self, etcd: EtcdServer) -> Iterator[list[Relay]]:
        """Two ways to the cluster, as if it had two members."""
        with relay(etcd.endpoints[0]) as first, relay(etcd.endpoints[0]) as second:
            yield [first, second]

    def test_it_goes_on_at_another_member(
        self, store: Access, members: list[Relay], prefix: str
    ) -> None:
        mine = Access([each.endpoint for each in members], prefix)
        watch = mine.events.watch()
        try:
            eventually(lambda: "/v3/watch" in members[0].paths)
            members[0].cut()
            eventually(lambda: "/v3/watch" in members[1].paths)
            last = store.events.last_number()
            store.acquire("me", Request("T"))
            wait_readable(watch.fd)
            watch.clear()
            eventually(lambda: len(list(mine.events.read(after=last))) == 2)
        finally:
            watch.close()

    def test_it_goes_on_when_etcd_has_forgotten_what_was_before(
        self, store: Access, members: list[Relay], prefix: str
    ) -> None:
        mine = Access([each.endpoint for each in members], prefix)
        watch = mine.events.watch()
        try:
            eventually(lambda: "/v3/watch" in members[0].paths)
            for each in members:
                each.cut()
            store.acquire("me", Request("T"))
            compact(store.gateway)
            for each in members:
                each.mend()
            wait_readable(watch.fd)
            watch.clear()
            assert [each.kind for each in mine.events.read()][1:] == ["queued", "granted"]
            while is_readable(watch.fd, 0.3):
                watch.clear()
            store.engine.free("me")
            wait_readable(watch.fd)
        finally:
            watch.close()


def compact(gateway: Gateway) -> None:
    """Have etcd forget what was before now."""
    key = "/compact"
    revision = gateway.commit((), [delete(key), read(key)]).revision
    gateway._ask("/v3/kv/compaction", {"revision": str(revision), "physical": True})
