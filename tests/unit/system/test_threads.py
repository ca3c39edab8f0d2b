"""What becomes of an error in a thread."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from leasectl.errors import Unanswered
from leasectl.system import threads
from leasectl.system.threads import start_thread


@pytest.fixture(autouse=True)
def reported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[list[str]]:
    """The lines for people; nothing else is on stderr."""
    lines: list[str] = []
    monkeypatch.setattr(threads, "_report", lines.append)
    monkeypatch.setattr(threads, "_reported", set())
    monkeypatch.setattr(threads, "_AGAIN_SECONDS", 0.01)
    yield lines
    assert capfd.readouterr().err == ""


class Broken(BaseException):
    """What no handler of errors catches."""


@pytest.mark.parametrize("error", [ValueError("a bug"), Broken("a bug")])
def test_error_is_reported_once_and_tells_those_who_wait(
    reported: list[str], error: BaseException
) -> None:
    failed = []

    def work() -> None:
        raise error

    for _ in range(2):
        start_thread("watch", work, failed=lambda: failed.append(1)).join()
    assert failed == [1, 1]
    name = type(error).__name__
    assert reported == [f"unexpected failure of the thread watch: {name}: a bug"]


def test_signal_ends_a_thread_quietly(reported: list[str]) -> None:
    def work() -> None:
        raise Unanswered(signal.SIGTERM)

    start_thread("watch", work, repeats=True).join()
    assert reported == []


def test_loop_goes_on_after_an_error(reported: list[str]) -> None:
    tries = []

    def work() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("a bug")

    start_thread("watch", work, repeats=True).join()
    assert len(tries) == 3
    assert len(reported) == 1


def test_error_of_the_report_itself_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_report", lambda _: 1 // 0)
    start_thread("watch", lambda: 1 // 0, failed=lambda: 1 // 0).join()


def test_threads_take_no_signals() -> None:
    masks: list[set[int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def work() -> None:
        masks.append({int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())})

    start_thread("watch", work).join()
    assert {signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1} <= masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
