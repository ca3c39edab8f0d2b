"""Requests that are made while the answer to the last is used."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from leasectl.engines.etcd.event_log import asked_ahead
from leasectl.errors import BackendUnreachable
from tests.kit.waits import wait_set


def test_one_is_under_way_while_the_last_is_used_and_never_two() -> None:
    begun = [threading.Event() for _ in range(4)]

    def ask(number: int) -> int:
        begun[number].set()
        return number

    for number in asked_ahead([partial(ask, number) for number in range(4)]):
        for each in begun[: number + 2]:
            wait_set(each)
        assert not any(each.is_set() for each in begun[number + 2 :])


@pytest.mark.parametrize("number", [0, 1, 5])
def test_they_come_in_order_however_many_there_are(number: int) -> None:
    assert list(asked_ahead([partial(int, each) for each in range(number)])) == list(range(number))


def test_who_asks_gets_the_error_in_its_turn_and_nothing_more_is_asked() -> None:
    asked = []

    def fail() -> str:
        asked.append("failed")
        raise BackendUnreachable("nobody there")

    answers = asked_ahead([lambda: "first", fail, fail])
    assert next(answers) == "first"
    with pytest.raises(BackendUnreachable, match="nobody there"):
        next(answers)
    assert list(answers) == []
    assert asked == ["failed"]


def test_who_has_enough_waits_for_nobody() -> None:
    goes_on, ended = threading.Event(), threading.Event()

    def hang() -> str:
        wait_set(goes_on)
        ended.set()
        return ""

    answers = asked_ahead([lambda: "first", hang])
    assert next(answers) == "first"
    answers.close()  # type: ignore[attr-defined]
    assert not ended.is_set()
    goes_on.set()
    wait_set(ended)
