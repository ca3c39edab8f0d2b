"""leasectl.pools.history: what is over is put right before events are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasectl.errors import BackendUnreachable, CorruptState, LeaseError, NotSupported
from leasectl.leases.service import Service
from leasectl.pools.history import encode_event, follow, parse_event, put_right
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk


def refuse(monkeypatch: pytest.MonkeyPatch, error: LeaseError) -> None:
    def pools(_: Service) -> None:
        raise error

    monkeypatch.setattr(Service, "pools", property(pools))


def test_a_server_that_is_away_is_not_waited_for_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, BackendUnreachable("no answer within 10s"))
    with pytest.raises(BackendUnreachable, match="no answer within 10s"):
        put_right(desk.service)


def test_events_are_told_also_where_nothing_can_be_put_right(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, NotSupported("no pools"))
    put_right(desk.service)


def never(*said: object) -> None:
    pytest.fail(str(said))


class RestoredMeanwhile:
    """An `EventLog` that is restored from an older copy right after its last number was asked."""

    def __init__(self) -> None:
        self.numbers = [90]
        self.is_restored = False

    def last_number(self) -> int:
        last = self.numbers[-1]
        if not self.is_restored:
            self.is_restored, self.numbers = True, [9]
        return last

    def read(self, wanted: EventFilter, *, after: int, missed: Any) -> Iterator[Event]:
        if after > self.numbers[-1]:
            missed(Missed(None, None, self.numbers[-1], is_restored=True))
            return
        yield from (Event(each, 0.0, "queued", "T") for each in list(self.numbers) if each > after)

    def watch(self) -> Any:
        return SimpleNamespace(fd=-1, clear=lambda: 0, close=lambda: None)


def test_a_restore_between_two_looks_is_told_once_and_no_event_after_it_is_left_out() -> None:
    log, missed = RestoredMeanwhile(), list[Missed]()

    def sleep(fds: object, until: object, read_up_to: int) -> None:
        assert log.numbers[-1] < 12, "all was read"
        log.numbers.append(log.numbers[-1] + 1)

    events = follow(
        cast(Any, log),
        ALL_EVENTS,
        after=90,
        sleep=sleep,
        missed=lambda gone, since: missed.append(gone),
        unreachable=never,
    )
    assert [event.number for piece in islice(events, 3) for event in piece] == [10, 11, 12]
    assert [each.last_number for each in missed] == [9]


def test_a_server_that_goes_away_twice_is_told_of_twice_and_no_event_comes_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, is_away, told = desk.service.events, False, list[object]()
    watches, last_number = list[object](), log.last_number

    def add() -> None:
        with desk.service.state.transaction():
            desk.service.state.events.add(5.0, "queued", "T")

    def watch() -> Any:
        watches.append(SimpleNamespace(fd=-1, clear=lambda: 0, close=lambda: watches.pop()))
        return watches[-1]

    def answer() -> int:
        if is_away:
            raise BackendUnreachable("no answer")
        return last_number()

    def sleep(fds: tuple[int, ...], until: float | None, read_up_to: int) -> None:
        nonlocal is_away
        is_away = until is None or told[-1] == "no answer"  # for two looks
        told.append((len(watches), until is None, read_up_to))
        if not is_away:
            add()

    monkeypatch.setattr(log, "watch", watch)
    monkeypatch.setattr(log, "last_number", answer)
    for _ in range(3):
        add()
    events = follow(
        log,
        ALL_EVENTS,
        last=2,
        begun=lambda: told.append("begun"),
        sleep=sleep,
        missed=never,
        unreachable=lambda error: told.append(str(error)),
    )
    assert [event.number for piece in islice(events, 3) for event in piece] == [2, 3, 4, 5]
    assert told[0] == "begun"
    for reached, part in ((3, told[1:5]), (4, told[5:])):
        assert part == [(1, True, reached), "no answer", *[(0, False, reached)] * 2]
    events.close()
    assert watches == []


@pytest.mark.parametrize("kind", [5, None, "nope", ["queued"]])
def test_an_event_of_an_unknown_kind_is_refused_in_plain_words(kind: object) -> None:
    line = json.dumps({**encode_event(Event(1, 1.0, "queued", "T")), "kind": kind})
    with pytest.raises(CorruptState, match=r"^not an event: .* \(no such kind\)$"):
        parse_event(line)
