"""Old events in etcd become one value a bucket, whoever else is at it, and nobody notices."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Callable

import pytest

from leasectl.engines.etcd import event_log, events, packing
from leasectl.engines.etcd.event_log import EtcdEventLog
from leasectl.engines.etcd.packing import pack_a_bucket
from leasectl.engines.etcd.requests import delete_all, put, read_all
from leasectl.model import Request
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Kept, Missed
from leasectl.system import afterwards
from leasectl.system.clock import Clock
from tests.kit.etcd.access import Access
from tests.kit.etcd.event_writer import SMALLEST, Writer, buckets, pack_all, packs, told
from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay
from tests.kit.waits import eventually

HOUR = 3600.0
MANY = Kept(HOUR, 32 * SMALLEST)  # the smallest buckets
FULL = 3  # buckets
WRITTEN = FULL * SMALLEST + 4


def fill(access: Access) -> None:
    """Three buckets that are written to no more, and one with four events."""
    writer = Writer(access, MANY)
    for _ in range(FULL):
        writer.write(SMALLEST // 2, at_once=SMALLEST // 2)
        writer.write(SMALLEST // 2, at_once=SMALLEST // 4, pool_type="U")
        writer.time.advance(1)
    writer.write(4)
    assert buckets(access) == [SMALLEST] * FULL + [4]


@pytest.fixture
def access(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a prefix with events in several buckets."""
    access = Access(etcd.endpoints, prefix)
    fill(access)
    return access


@pytest.fixture
def filled(etcd: EtcdServer, prefix: str) -> Iterator[Access]:
    """Any number of such prefixes."""

    def fill_them() -> Iterator[Access]:
        for number in itertools.count():
            access = Access(etcd.endpoints, f"{prefix}/{number}")
            fill(access)
            yield access

    return fill_them()


def pack_one(access: Access) -> None:
    """Pack the oldest bucket that can be packed."""
    pack_a_bucket(access.gateway, clock=Clock(), choose=itemgetter(0))


def through(between: Relay, access: Access) -> Access:
    """The same, by way of the relay."""
    return Access([between.endpoint], access.keys.prefix)


class TestReading:
    def test_what_is_packed_is_read_as_before(self, access: Access) -> None:
        before = list(access.events.read())
        assert [event.reason for event in before] == [str(n) for n in range(WRITTEN)]
        for packed in range(1, FULL + 2):
            pack_one(access)
            assert packs(access) == [SMALLEST] * min(packed, FULL)
            assert sum(packs(access)) + sum(buckets(access)) == WRITTEN
            assert list(access.events.read()) == before
            assert access.events.last_number() == before[-1].number
            assert access.events.volume().number == WRITTEN
            for index in range(0, WRITTEN, 7):
                rest = before[index + 1 :]
                assert list(access.events.read(after=before[index].number)) == rest
        for wanted in (ALL_EVENTS, EventFilter(type="U"), EventFilter(since=before[30].time)):
            chosen = list(filter(wanted.wants, before))
            assert list(access.events.read(wanted)) == chosen
            for number in (0, 5, 30, 100):
                assert access.events.latest(wanted, number) == chosen[::-1][:number]

    def test_the_last_number_may_be_that_of_a_pack(self, access: Access) -> None:
        last = access.events.last_number()
        writer = Writer(access, first=1000)
        writer.time.advance(HOUR / 2)
        access.gateway.commit((), [put(f"{access.keys.prefix}test/1000", "")])
        with pytest.raises(AssertionError):
            writer.write()  # the key is there already: the bucket is made, the event isn't
        pack_all(access)
        assert (sum(buckets(access)), packs(access)) == (0, [SMALLEST] * FULL + [4])
        assert access.events.last_number() == last

    @pytest.mark.parametrize(
        ("read", "expected"),
        [
            (lambda log: log.read(), slice(None)),
            (lambda log: log.read(after=log.latest(ALL_EVENTS, 20)[-1].number), slice(-19, None)),
            (lambda log: log.latest(EventFilter(until=2e9), 100)[::-1], slice(None)),
        ],
    )
    def test_who_reads_while_they_are_packed_sees_each_once(
        self,
        filled: Iterator[Access],
        between: Relay,
        read: Callable[[EtcdEventLog], list[Event]],
        expected: slice,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Before any of the reader's requests all is packed that can be."""
        monkeypatch.setattr(event_log, "_PAGE", 9)
        number = at_most = 0
        while number <= at_most:
            number += 1
            access = next(filled)
            before, first = list(access.events.read()), len(between.paths)

            def pack_them(
                at: int, _: str, mine: Access = access, when: int = first + number
            ) -> None:
                if at == when:
                    pack_all(mine)

            between.listen(before=pack_them)
            assert list(read(through(between, access).events)) == before[expected], number
            at_most = len(between.paths) - first
        assert at_most >= 2

    def test_many_packs_come_with_one_request(self, access: Access, between: Relay) -> None:
        pack_all(access)
        log = through(between, access).events
        assert len(list(log.read())) == WRITTEN
        assert len(between.paths) == 3  # what there is, the packs, what isn't packed
        assert len(log.latest(ALL_EVENTS, 6)) == 6
        assert len(between.paths) == 6  # what there is, what isn't packed, a pack
        last = log.latest(ALL_EVENTS, 1)[0].number
        asked = len(between.paths)
        assert list(log.read(after=last)) == []
        assert len(between.paths) == asked + 2

    def test_what_somebody_else_has_put_in_the_place_of_a_pack_is_left_out(
        self, access: Access
    ) -> None:
        pack_all(access)
        first, second, *_ = access.gateway.read(read_all(access.keys.packs)).answers[0].items
        access.gateway.commit((), [put(first.key, "x"), put(f"{second.key}x/y", second.value)])
        assert told(access) == list(range(SMALLEST, WRITTEN))
        assert access.events.volume().number == WRITTEN

    def test_who_is_behind_is_told_that_a_pack_is_gone(self, access: Access) -> None:
        pack_all(access)
        numbers = [event.number for event in access.events.read()]
        (found,) = access.gateway.read(read_all(access.keys.buckets)).answers
        access.gateway.revoke(found.items[0].etcd_lease_id)
        access.gateway.revoke(found.items[1].etcd_lease_id)
        assert packs(access) == [SMALLEST]
        for after, is_told in ((numbers[3], True), (numbers[2 * SMALLEST], False)):
            missed: list[Missed] = []
            list(access.events.read(after=after, missed=missed.append))
            assert bool(missed) == is_told


class TestPacking:
    def test_the_bucket_of_now_is_never_packed(self, access: Access) -> None:
        pack_all(access)
        assert buckets(access) == [0] * FULL + [4]
        Writer(access, first=WRITTEN).write(2)
        assert told(access) == list(range(WRITTEN + 2))

    def test_a_bucket_without_events_is_packed_once(self, etcd: EtcdServer, prefix: str) -> None:
        access = Access(etcd.endpoints, prefix)
        fill(access)
        access.gateway.commit((), [delete_all(access.keys.events)])
        pack_all(access)
        assert packs(access) == [0] * FULL
        assert told(access) == []

    def test_an_answer_may_be_lost(self, filled: Iterator[Access], between: Relay) -> None:
        for lost in range(1, 5):
            access = next(filled)
            before, first = list(access.events.read()), len(between.paths)
            between.listen(after=lambda at, _, which=first + lost: at == which)  # type: ignore[misc]
            pack_one(through(between, access))
            assert len(between.paths) - first == 5
            assert list(access.events.read()) == before
            assert packs(access) == [SMALLEST]

    def test_a_bucket_may_end_meanwhile(self, filled: Iterator[Access], between: Relay) -> None:
        for number in range(1, 5):
            access = next(filled)
            first = len(between.paths)
            (found,) = access.gateway.read(read_all(access.keys.buckets)).answers
            ends = partial(access.gateway.revoke, found.items[0].etcd_lease_id)
            between.listen(
                before=lambda at, _, when=first + number, end=ends: at == when and end()  # type: ignore[misc]
            )
            pack_one(through(between, access))
            assert told(access) == list(range(SMALLEST, WRITTEN))
            assert packs(access) in ([], [SMALLEST])  # that of the next

    def test_what_somebody_writes_there_meanwhile_is_not_lost(
        self, access: Access, between: Relay
    ) -> None:
        (found,) = access.gateway.read(read_all(access.keys.events, limit=1)).answers
        foreign = found.items[0].key[:-1] + "x"

        def write(at: int, _: str) -> None:
            if at == 4:  # the transaction
                access.gateway.commit((), [put(foreign, found.items[0].value)])

        between.listen(before=write)
        pack_one(through(between, access))
        assert packs(access) == []
        between.listen()
        before = list(access.events.read())
        pack_all(access)
        assert packs(access) == [SMALLEST + 1, SMALLEST, SMALLEST]
        assert list(access.events.read()) == before

    @pytest.mark.parametrize(
        ("limit", "value"), [("_MOST_EVENTS", SMALLEST - 1), ("_LONGEST_PACK", 100)]
    )
    def test_what_is_too_large_stays_as_it_is(
        self, access: Access, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
    ) -> None:
        monkeypatch.setattr(packing, limit, value)
        pack_all(access)
        assert packs(access) == []
        assert told(access) == list(range(WRITTEN))

    def test_an_etcd_that_does_not_answer_is_left_alone(
        self, access: Access, between: Relay
    ) -> None:
        between.cut()
        pack_one(Access([between.endpoint], access.keys.prefix, seconds=0.1))
        assert packs(access) == []


class TestWhoPacks:
    @pytest.fixture(autouse=True)
    def nothing_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(afterwards, "_left", None)

    def test_what_ends_something_packs_when_all_else_is_done(self, access: Access) -> None:
        Writer(access, first=WRITTEN).write(kind="released")
        assert packs(access) == []
        afterwards.finish()
        assert packs(access) == [SMALLEST]
        afterwards.finish()
        assert packs(access) == [SMALLEST]

    def test_what_has_been_done_is_done_though_the_code_for_the_rest_is_gone(
        self, access: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The package was replaced meanwhile."""
        writer = Writer(access, first=WRITTEN)
        monkeypatch.setitem(sys.modules, "leasectl.system.afterwards", None)
        writer.write(kind="released")
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "leasectl.engines.etcd.packing", None)
        writer.write(kind="released")
        afterwards.finish()
        assert told(access) == list(range(WRITTEN + 2))

    @pytest.mark.parametrize("kind", ["queued", "granted"])
    def test_what_begins_something_leaves_that_to_others(self, access: Access, kind: str) -> None:
        Writer(access, first=WRITTEN).write(kind=kind)  # type: ignore[arg-type]
        afterwards.finish()
        assert packs(access) == []

    def test_a_process_that_goes_on_does_it_beside(
        self, access: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(afterwards, "_goes_on", False)
        afterwards.go_on()
        Writer(access, first=WRITTEN).write(kind="released")
        eventually(lambda: packs(access) == [SMALLEST])

    def test_a_release_makes_as_many_requests_as_ever_before_its_answer(
        self, store: Access, between: Relay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine, numbers = through(between, store), []
        for look_every in (2**64, 1):
            mine.acquire("me", Request("T"))
            monkeypatch.setattr(events, "_LOOK_EVERY", look_every)
            first = len(between.paths)
            mine.engine.free("me")
            numbers.append(len(between.paths) - first)
            first = len(between.paths)
            afterwards.finish()
            numbers.append(len(between.paths) - first)
        usual, after, looking, after_looking = numbers
        assert (after, looking - usual, after_looking) == (0, 1, 1)
