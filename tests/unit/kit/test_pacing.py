"""That the judge of a pace finds what is too fast, and nothing else."""

from __future__ import annotations

from tests.kit.pacing import too_fast


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
