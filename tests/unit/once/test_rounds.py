"""Whom a failure or a death concerns: those who waited then, and nobody who comes later."""

from __future__ import annotations

import random

import pytest

from leasectl.errors import CorruptState
from leasectl.once.results import (
    MOST_DEATHS,
    Failure,
    Round,
    Terms,
    Verdict,
    begun,
    died,
    encode_round,
    failed,
    of_those_who_wait,
    of_ticket,
    parse_round,
    stopped,
    verdict,
)

TERMS = Terms(86400.0, 3, False, None)


def failing(found: Round, *, last_ticket: int, times: int = 1, is_final: bool = False) -> Round:
    for number in range(times):
        found = failed(begun(found, number, last_ticket, TERMS), 7, last_ticket, is_final=is_final)
    return found


class TestFailures:
    def test_are_tried_again_as_often_as_there_are_attempts(self) -> None:
        for times in range(3):
            assert verdict(failing(Round(), last_ticket=9, times=times), 5, attempts=3) is None
        assert verdict(failing(Round(), last_ticket=9, times=3), 5, attempts=3) == Verdict(7, 3)

    def test_that_are_shared_end_all_who_waited(self) -> None:
        found = failing(Round(), last_ticket=9, is_final=True)
        assert verdict(found, 9, attempts=3) == Verdict(7, 1)
        assert verdict(found, 10, attempts=3) is None

    def test_concern_nobody_who_came_later(self) -> None:
        found = failing(failing(Round(), last_ticket=5), last_ticket=9, times=2)
        assert verdict(found, 5, attempts=3) == Verdict(7, 3)
        assert verdict(found, 6, attempts=3) is None

    def test_end_with_the_last_status(self) -> None:
        found = failed(failed(Round(), 3, 9, is_final=False), 4, 9, is_final=False)
        assert verdict(found, 1, attempts=2) == Verdict(4, 2)

    def test_keep_the_last_lines_of_the_latest_alone(self) -> None:
        found = failed(Round(), 3, 9, is_final=False, lines="first")
        found = failed(found, 4, 9, is_final=False, lines="a\nb")
        assert [each.lines for each in found.failures] == ["", "a\nb"]
        assert parse_round(encode_round(found)) == found
        assert verdict(found, 1, attempts=2) == Verdict(4, 2, "a\nb")


class TestDeaths:
    def dying(self, times: int) -> Round:
        found = Round()
        for fence in range(times):
            found = begun(found, fence, 9, TERMS)
        return died(found, 9)

    def test_are_no_failures(self) -> None:
        assert verdict(self.dying(MOST_DEATHS - 1), 5, attempts=1) is None

    def test_end_the_wait_of_who_has_seen_too_many(self) -> None:
        assert verdict(self.dying(MOST_DEATHS), 5, attempts=3) == Verdict(None, MOST_DEATHS)
        assert verdict(self.dying(MOST_DEATHS), 10, attempts=3) is None

    def test_begin_anew_with_one_who_only_fails(self) -> None:
        found = failing(self.dying(MOST_DEATHS - 1), last_ticket=9)
        assert found.deaths == ()

    def test_are_none_of_who_was_asked_to_stop(self) -> None:
        assert begun(stopped(begun(Round(), 1, 9, TERMS), 9), 2, 9, TERMS).deaths == ()


def test_what_concerns_nobody_any_more_is_dropped() -> None:
    chance = random.Random(3)
    for _ in range(300):
        found = Round()
        for _ in range(8):
            last = chance.randrange(20)
            if chance.random() < 0.5:
                found = begun(found, 1, last, TERMS)
            else:
                found = failed(found, 7, last, is_final=chance.random() < 0.2)
        first = chance.randrange(20)
        left = of_those_who_wait(found, first)
        assert left is not None
        for ticket in range(first, 25):
            assert verdict(left, ticket, attempts=3) == verdict(found, ticket, attempts=3)
    assert of_those_who_wait(failed(found, 1, 5, is_final=False), None) is None


class TestRounds:
    def test_go_by_the_terms_of_their_first_ticket(self) -> None:
        other = TERMS._replace(attempts=1)
        found = failed(begun(Round(), 1, 5, TERMS), 7, 9, is_final=False)
        assert begun(of_ticket(found, 9), 2, 9, other).terms == TERMS
        assert begun(of_ticket(found, 10), 2, 10, other) == Round(
            running=2, last_ticket=10, terms=other
        )

    def test_take_in_whoever_finds_that_a_runner_has_died(self) -> None:
        found = begun(Round(), 1, 5, TERMS)
        assert of_ticket(found, 9) == found

    def test_go_on_when_a_runner_was_asked_to_stop(self) -> None:
        found = stopped(begun(Round(), 1, 5, TERMS), 9)
        assert of_ticket(found, 9).terms == TERMS
        assert of_ticket(found, 10) == Round()


def test_it_is_read_as_it_was_written() -> None:
    terms = Terms(1.5, 4, True, 3600.0)
    found = Round((Failure(9, 7, True),), (4, 5), 3, 12, terms, "a-key")
    assert parse_round(encode_round(found)) == found
    assert parse_round(encode_round(Round())) == Round()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"failures": 1}', b"\xff"])
def test_anything_else_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptState):
        parse_round(content)
