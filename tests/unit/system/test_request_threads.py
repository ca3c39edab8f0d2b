"""Errands that threads run."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import Callable

import pytest

from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.system.clock import Clock
from leasectl.system.request_threads import Errands, Outcome


class Places:
    """Two places whose errands end when they are let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.run: list[str] = []
        self.let_go = {"fast": threading.Event(), "hangs": threading.Event()}
        self.let_go["fast"].set()

    def begin(self, where: str) -> Callable[[str], tuple[str, ...]]:
        self.begun.append(where)

        def work(job: str) -> tuple[str, ...]:
            self.run.append(job)
            self.let_go[where].wait(20)
            if job == "refused":
                raise BackendUnreachable("nobody there")
            if job == "broken":
                raise ValueError("a bug")
            return (job,)

        return work


@pytest.fixture
def places() -> Places:
    return Places()


@pytest.fixture
def errands(places: Places) -> Iterator[Errands[str, str]]:
    errands = Errands(places.begin, clock=Clock())
    yield errands
    for event in places.let_go.values():
        event.set()
    errands.close()


def next_outcomes(errands: Errands[str, str]) -> list[Outcome[str]]:
    assert select.select([errands.fd], [], [], 20)[0]
    return errands.outcomes()


def test_one_that_hangs_holds_up_only_those_to_the_same_place(
    errands: Errands[str, str], places: Places
) -> None:
    errands.send("hangs", "first")
    errands.send("hangs", "second")
    errands.send("fast", "third")
    (outcome,) = next_outcomes(errands)
    assert (outcome.job, outcome.result()) == ("third", ("third",))
    places.let_go["hangs"].set()
    jobs = [each.job for each in next_outcomes(errands)]
    while len(jobs) < 2:
        jobs += [each.job for each in next_outcomes(errands)]
    assert jobs == ["first", "second"]
    assert sorted(places.begun) == ["fast", "hangs"]


def test_the_same_errand_is_not_sent_twice_at_once_but_again_afterwards(
    errands: Errands[str, str], places: Places
) -> None:
    errands.send("hangs", "job")
    errands.send("hangs", "job")
    assert errands.under_way == {"job"}
    places.let_go["hangs"].set()
    next_outcomes(errands)
    assert places.run == ["job"]
    errands.send("hangs", "job")
    next_outcomes(errands)
    assert places.run == ["job", "job"]


def test_its_outcome_says_why_it_failed(errands: Errands[str, str]) -> None:
    errands.send("fast", "refused")
    (outcome,) = next_outcomes(errands)
    with pytest.raises(BackendUnreachable, match="nobody there"):
        outcome.result()


def test_a_bug_in_it_is_an_outcome_too(errands: Errands[str, str]) -> None:
    errands.send("fast", "broken")
    (outcome,) = next_outcomes(errands)
    with pytest.raises(LeaseError, match="a bug"):
        outcome.result()


def test_the_time_is_that_of_the_sending(errands: Errands[str, str], places: Places) -> None:
    clock = Clock()
    before = clock.elapsed()
    errands.send("hangs", "job")
    while not places.run:
        pass
    sent = clock.elapsed()
    places.let_go["hangs"].set()
    (outcome,) = next_outcomes(errands)
    assert before <= outcome.sent_at <= sent


def test_one_that_ends_after_the_close_writes_to_no_descriptor(places: Places) -> None:
    errands = Errands(places.begin, clock=Clock())
    others = threading.enumerate()
    errands.send("hangs", "job")
    (thread,) = [each for each in threading.enumerate() if each not in others]
    errands.close()
    read_fd, write_fd = os.pipe()  # these have the numbers that were closed
    places.let_go["hangs"].set()
    thread.join(20)
    assert not thread.is_alive()
    assert not select.select([read_fd], [], [], 0)[0]
    os.close(read_fd)
    os.close(write_fd)
