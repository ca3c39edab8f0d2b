"""That the judge of a pace finds what is too fast, and nothing else."""

from __future__ import annotations

from leasectl.state.event import Event
from tests.kit.pacing import middle_gap, too_fast, too_late


def test_grants_at_the_pace_are_right_whatever_their_order() -> None:
    assert too_fast([4.0, 0.0, 2.0], pace=2) == []
    assert too_fast([0.0, 0.0, 0.0, 2.0, 4.0], pace=2, burst=3) == []
    assert too_fast([], pace=2) == []


def test_two_too_close_are_found() -> None:
    assert too_fast([0.0, 2.0, 3.5], pace=2) == [
        "3 grants within 3.500s",
        "2 grants within 1.500s",
    ]


def test_a_stretch_is_found_in_which_each_step_is_right() -> None:
    times = [0.0, 0.0, 2.0, 2.0]
    assert too_fast(times, pace=2, burst=2) == ["4 grants within 2.000s"]


def test_a_pace_that_is_too_slow_is_told_from_a_machine_that_had_no_time_once() -> None:
    assert middle_gap([0.0, 9.0, 1.0, 3.0, 2.0]) == 1.0
    assert middle_gap([0.0, 2.0, 4.0, 6.0]) == 2.0


def test_a_grant_that_nobody_had_to_wait_for_is_late() -> None:
    queued = [Event(number, 0.0, "queued", "T", ticket=number) for number in (1, 2, 3)]

    def granted(*times: float) -> list[Event]:
        return [Event(9, at, "granted", "T", ticket=n) for n, at in enumerate(times, start=1)]

    assert too_late([*queued, *granted(0.0, 2.0, 4.1)], pace=2, slack=0.2) == []
    assert too_late([*queued, *granted(0.0, 2.0, 4.3)], pace=2, slack=0.2) == [
        "ticket 3 was granted 0.300s too late"
    ]
    later = queued[2]._replace(time=9.0)
    assert too_late([*queued[:2], later, *granted(0.0, 2.0, 9.1)], pace=2, slack=0.2) == []
