"""Jobs that threads do, at one server each."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import Callable

import pytest

from leasectl.errors import BackendUnreachable, LeaseError, Unanswered
from leasectl.system.clock import Clock
from leasectl.system.request_threads import Outcome, RequestThreads
from tests.kit.waits import join, wait_readable, wait_set


class Servers:
    """Two servers at which jobs end when they are let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.run: list[str] = []
        self.let_go = {"fast": threading.Event(), "hangs": threading.Event()}
        self.let_go["fast"].set()

    def begin(self, server: str) -> Callable[[str], tuple[str, ...]]:
        self.begun.append(server)

        def work(job: str) -> tuple[str, ...]:
            self.run.append(job)
            wait_set(self.let_go[server])
            if job == "refused":
                raise BackendUnreachable("nobody there")
            if job == "interrupted":
                raise Unanswered(15)
            if job == "broken":
                raise ValueError("a bug")
            return (job,)

        return work


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def threads(servers: Servers) -> Iterator[RequestThreads[str, str, tuple[str, ...]]]:
    threads = RequestThreads(servers.begin, clock=Clock())
    yield threads
    for event in servers.let_go.values():
        event.set()
    threads.close()


def test_the_thread_of_a_server_can_be_started_before_its_first_job(
    threads: RequestThreads[str, str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    threads.open("fast")
    monkeypatch.setattr(threading.Thread, "start", fail)
    threads.send("fast", "job")
    (outcome,) = next_outcomes(threads)
    assert outcome.result() == ("job",)
    with pytest.raises(LeaseError, match="ulimit -u"):
        threads.open("hangs")


def next_outcomes(
    threads: RequestThreads[str, str, tuple[str, ...]],
) -> list[Outcome[str, tuple[str, ...]]]:
    assert threads.fd is not None
    wait_readable(threads.fd)
    return threads.outcomes()


def test_one_that_hangs_holds_up_only_those_at_the_same_server(
    threads: RequestThreads[str, str, tuple[str, ...]], servers: Servers
) -> None:
    threads.send("hangs", "first")
    threads.send("hangs", "second")
    threads.send("fast", "third")
    (outcome,) = next_outcomes(threads)
    assert (outcome.job, outcome.result()) == ("third", ("third",))
    servers.let_go["hangs"].set()
    jobs = [each.job for each in next_outcomes(threads)]
    while len(jobs) < 2:
        jobs += [each.job for each in next_outcomes(threads)]
    assert jobs == ["first", "second"]
    assert sorted(servers.begun) == ["fast", "hangs"]


def test_the_same_job_is_not_sent_twice_at_once_but_again_afterwards(
    threads: RequestThreads[str, str, tuple[str, ...]], servers: Servers
) -> None:
    threads.send("hangs", "job")
    threads.send("hangs", "job")
    assert threads.under_way == {"job"}
    servers.let_go["hangs"].set()
    next_outcomes(threads)
    assert servers.run == ["job"]
    threads.send("hangs", "job")
    next_outcomes(threads)
    assert servers.run == ["job", "job"]


def test_its_outcome_says_why_it_failed(threads: RequestThreads[str, str, tuple[str, ...]]) -> None:
    threads.send("fast", "refused")
    (outcome,) = next_outcomes(threads)
    with pytest.raises(BackendUnreachable, match="nobody there"):
        outcome.result()


def test_a_bug_in_it_is_an_outcome_too(threads: RequestThreads[str, str, tuple[str, ...]]) -> None:
    threads.send("fast", "broken")
    (outcome,) = next_outcomes(threads)
    with pytest.raises(LeaseError, match="a bug"):
        outcome.result()


def test_the_time_is_that_of_the_sending(
    threads: RequestThreads[str, str, tuple[str, ...]], servers: Servers
) -> None:
    clock = Clock()
    before = clock.elapsed()
    threads.send("hangs", "job")
    while not servers.run:
        pass
    sent = clock.elapsed()
    servers.let_go["hangs"].set()
    (outcome,) = next_outcomes(threads)
    assert before <= outcome.sent_at <= sent


def test_one_that_ends_after_the_close_writes_to_no_descriptor(servers: Servers) -> None:
    threads = RequestThreads(servers.begin, clock=Clock())
    others = threading.enumerate()
    threads.send("hangs", "job")
    (thread,) = [each for each in threading.enumerate() if each not in others]
    threads.close()
    read_fd, write_fd = os.pipe()  # these have the numbers that were closed
    servers.let_go["hangs"].set()
    join(thread)
    assert not thread.is_alive()
    assert not select.select([read_fd], [], [], 0)[0]
    os.close(read_fd)
    os.close(write_fd)


def test_signal_in_the_middle_of_a_job_leaves_the_next_one_done(
    threads: RequestThreads[str, str, tuple[str, ...]],
) -> None:
    threads.send("fast", "interrupted")
    threads.send("fast", "next")
    outcomes = next_outcomes(threads)
    while len(outcomes) < 2:
        outcomes += next_outcomes(threads)
    interrupted, following = outcomes
    assert isinstance(interrupted.error, LeaseError)
    assert following.result() == ("next",)
