"""Whom a failure or a death concerns: those who waited then, and nobody who comes later."""

from __future__ import annotations

import random

import pytest

from leasectl.errors import CorruptState
from leasectl.once.rounds import (
    MOST_DEATHS,
    Failure,
    Round,
    Verdict,
    begun,
    encode_round,
    failed,
    of_those_who_wait,
    parse_round,
    stopped,
    verdict,
)


def failing(found: Round, *, last_ticket: int, times: int = 1, is_final: bool = False) -> Round:
    for number in range(times):
        found = failed(begun(found, number, last_ticket), 7, last_ticket, is_final=is_final)
    return found


class TestFailures:
    def test_are_tried_again_as_often_as_there_are_attempts(self) -> None:
        for times in range(3):
            assert verdict(failing(Round(), last_ticket=9, times=times), 5, attempts=3) is None
        assert verdict(failing(Round(), last_ticket=9, times=3), 5, attempts=3) == Verdict(7)

    def test_that_are_shared_end_all_who_waited(self) -> None:
        found = failing(Round(), last_ticket=9, is_final=True)
        assert verdict(found, 9, attempts=3) == Verdict(7)
        assert verdict(found, 10, attempts=3) is None

    def test_concern_nobody_who_came_later(self) -> None:
        found = failing(failing(Round(), last_ticket=5), last_ticket=9, times=2)
        assert verdict(found, 5, attempts=3) == Verdict(7)
        assert verdict(found, 6, attempts=3) is None

    def test_end_with_the_last_status(self) -> None:
        found = failed(failed(Round(), 3, 9, is_final=False), 4, 9, is_final=False)
        assert verdict(found, 1, attempts=2) == Verdict(4)


class TestDeaths:
    def dying(self, times: int) -> Round:
        found = Round()
        for fence in range(times + 1):
            found = begun(found, fence, 9)
        return found

    def test_are_no_failures(self) -> None:
        assert verdict(self.dying(MOST_DEATHS - 1), 5, attempts=1) is None

    def test_end_the_wait_of_who_has_seen_too_many(self) -> None:
        assert verdict(self.dying(MOST_DEATHS), 5, attempts=3) == Verdict(None)
        assert verdict(self.dying(MOST_DEATHS), 10, attempts=3) is None

    def test_begin_anew_with_one_who_only_fails(self) -> None:
        found = failing(self.dying(MOST_DEATHS - 1), last_ticket=9)
        assert found.deaths == ()

    def test_are_none_of_who_was_asked_to_stop(self) -> None:
        assert begun(stopped(begun(Round(), 1, 9)), 2, 9).deaths == ()


def test_what_concerns_nobody_any_more_is_dropped() -> None:
    chance = random.Random(3)
    for _ in range(300):
        found = Round()
        for _ in range(8):
            last = chance.randrange(20)
            if chance.random() < 0.5:
                found = begun(found, 1, last)
            else:
                found = failed(found, 7, last, is_final=chance.random() < 0.2)
        first = chance.randrange(20)
        left = of_those_who_wait(found, first)
        for ticket in range(first, 25):
            assert verdict(left, ticket, attempts=3) == verdict(found, ticket, attempts=3)
    assert of_those_who_wait(found, None) == Round(running=found.running)


def test_it_is_read_as_it_was_written() -> None:
    found = Round((Failure(9, 7, True),), (4, 5), 3)
    assert parse_round(encode_round(found)) == found
    assert parse_round(encode_round(Round())) == Round()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"failures": 1}', b"\xff"])
def test_anything_else_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptState):
        parse_round(content)
