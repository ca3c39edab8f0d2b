"""leasectl.system.backoff"""

from __future__ import annotations

import pytest

from leasectl.system.backoff import Backoff, Pauses, retry


class Passing(Exception):
    """What may pass."""


class Work:
    """Fails so many times, on a clock of its own."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.now = 0.0
        self.tried_at: list[float] = []
        self.noted: list[tuple[int, str]] = []

    def once(self) -> str:
        self.tried_at.append(self.now)
        if self._failures:
            raise self._failures.pop(0)
        return "done"

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def retry(self, backoff: Backoff, *, until: float, chance: float = 0.0) -> str:
        return retry(
            self.once,
            on=(Passing,),
            backoff=backoff,
            is_over=lambda pause: self.now + pause >= until,
            sleep=self.sleep,
            note=lambda failures, error: self.noted.append((failures, str(error))),
            random=lambda: chance,
        )


class TestBackoff:
    def test_pauses_double_up_to_the_longest(self) -> None:
        backoff = Backoff(1.0, 5.0)
        assert [backoff.pause(n) for n in range(1, 6)] == [1, 2, 4, 5, 5]
        assert backoff.pause(1_000_000) == 5

    def test_the_first_is_no_longer_than_the_longest(self) -> None:
        assert Backoff(1.0, 0.5).pause(1) == 0.5

    @pytest.mark.parametrize(
        ("chance", "shortest", "longest"), [(0.0, 8, 8), (0.9, 0.8, 8), (1.0, 0, 8)]
    )
    def test_as_much_of_it_as_was_said_is_left_to_chance(
        self, chance: float, shortest: float, longest: float
    ) -> None:
        backoff = Backoff(2.0, 60.0, chance)
        assert backoff.pause(3, lambda: 0.0) == longest
        assert backoff.pause(3, lambda: 1.0) == pytest.approx(shortest)

    def test_chance_is_not_the_same_each_time(self) -> None:
        pauses = {Backoff(1.0, 1.0, 1.0).pause(1) for _ in range(20)}
        assert len(pauses) > 1
        assert all(0 <= pause <= 1 for pause in pauses)


class TestPauses:
    def test_they_begin_anew_once_it_has_worked(self) -> None:
        pauses = Pauses(Backoff(0.25, 1.0))
        assert [pauses.next() for _ in range(4)] == [0.25, 0.5, 1, 1]
        pauses.begin_anew()
        assert pauses.next() == 0.25


class TestRetry:
    def test_what_works_is_not_done_again(self) -> None:
        work = Work()
        assert work.retry(Backoff(1, 60), until=100) == "done"
        assert (work.tried_at, work.noted) == ([0], [])

    def test_what_may_pass_is_tried_again_after_each_pause(self) -> None:
        work = Work(Passing("a"), Passing("b"), Passing("c"))
        assert work.retry(Backoff(1, 60), until=100) == "done"
        assert work.tried_at == [0, 1, 3, 7]
        assert work.noted == [(1, "a"), (2, "b"), (3, "c")]

    def test_the_last_error_is_raised_when_there_is_no_time_for_a_pause(self) -> None:
        work = Work(*(Passing(str(n)) for n in range(9)))
        with pytest.raises(Passing, match="2"):
            work.retry(Backoff(1, 60), until=7)
        assert work.tried_at == [0, 1, 3]

    def test_other_errors_end_it(self) -> None:
        work = Work(Passing("a"), ValueError("b"))
        with pytest.raises(ValueError, match="b"):
            work.retry(Backoff(1, 60), until=100)
        assert work.tried_at == [0, 1]
        at_once = Work(ValueError("b"))
        with pytest.raises(ValueError, match="b"):
            at_once.retry(Backoff(1, 60), until=100)

    def test_chance_shortens_pauses(self) -> None:
        work = Work(Passing("a"), Passing("b"))
        work.retry(Backoff(1, 60, chance=1.0), until=100, chance=0.75)
        assert work.tried_at == [0, 0.25, 0.75]
