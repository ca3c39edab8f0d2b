"""What nobody waits for: when it is done, and that nothing of it is anybody's business."""

from __future__ import annotations

import threading

import pytest

from leasectl.system import afterwards
from tests.kit.waits import wait_set


@pytest.fixture(autouse=True)
def as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the whole process these are said once."""
    monkeypatch.setattr(afterwards, "_left", None)
    monkeypatch.setattr(afterwards, "_goes_on", False)
    monkeypatch.setattr(afterwards, "_begun", None)


def test_it_is_done_at_the_end_and_once() -> None:
    done: list[int] = []
    afterwards.leave(lambda: done.append(1))
    assert done == []
    afterwards.finish()
    afterwards.finish()
    assert done == [1]


def test_where_there_is_no_thread_it_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    afterwards.go_on()
    afterwards.leave(lambda: pytest.fail("it was done"))
    afterwards.finish()


def test_a_process_that_goes_on_has_a_thread_do_it_at_once() -> None:
    afterwards.go_on()
    done, threads = threading.Event(), []

    def work() -> None:
        threads.append(threading.current_thread())
        done.set()

    afterwards.leave(work)
    wait_set(done)
    assert threads[0].daemon
    assert threads[0] is not threading.main_thread()


def test_what_is_begun_is_done_beside_the_answer_in_its_order() -> None:
    done, may_go_on = [], threading.Event()
    afterwards.begin(may_go_on.wait)
    for number in range(3):
        afterwards.begin(lambda n=number: done.append(n))  # type: ignore[misc]
    assert done == []
    may_go_on.set()
    afterwards.finish()
    assert done == [0, 1, 2]


def test_what_fails_doesnt_keep_the_next_from_being_done() -> None:
    done: list[int] = []
    afterwards.begin(lambda: 1 // 0)
    afterwards.begin(lambda: done.append(1))
    afterwards.finish()
    assert done == [1]


def test_what_takes_too_long_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afterwards, "LONGEST_SECONDS", 0.01)
    never = threading.Event()
    afterwards.begin(never.wait)
    afterwards.finish()
    never.set()


def test_what_is_begun_needs_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    afterwards.begin(lambda: pytest.fail("it was done"))
    afterwards.finish()
