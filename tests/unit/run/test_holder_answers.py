"""leasectl.run.holder_answers: who answers for a lease while its command runs, and when."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.leases.marks import answer_for_holder, use
from leasectl.model import Handle, Request, whole
from leasectl.run.child import Child
from leasectl.run.holder_answers import HolderAnswers, start_asking
from leasectl.system.poll import is_readable
from leasectl.system.signals import SignalDescriptor
from tests.kit.desk import Desk
from tests.kit.reclaiming import Operator
from tests.kit.waits import PATIENCE_SECONDS, wait_set

GOOD_FOR = 100.0


@pytest.fixture
def handle(desk: Desk) -> Handle:
    """Holds two."""
    desk.pool(2)
    return desk.acquire(Request("T", count=2, on_reclaim="release"))


@pytest.fixture
def operator(desk: Desk, handle: Handle) -> Operator:
    return Operator(desk.service.notes, seconds=GOOD_FOR)


def settle(answers: HolderAnswers, is_so: Callable[[], object] = lambda: False) -> None:
    """Look whenever there is something to see, until nothing is under way any more, or until
    something is so."""
    for _ in range(20):
        if is_so() or not (answers._child is not None or answers._threads.under_way):
            return
        found, _, _ = select.select(answers.fds(), [], [], PATIENCE_SECONDS)
        assert found
        answers.look(found)
    pytest.fail("it goes on for ever")


class TestByItsRequest:
    @pytest.fixture
    def answers(self, desk: Desk, handle: Handle) -> Iterator[HolderAnswers]:
        with contextlib.closing(HolderAnswers(desk.service, handle, ask=None)) as answers:
            yield answers

    def test_nothing_is_asked_for_and_nothing_is_looked_for(
        self, desk: Desk, answers: HolderAnswers
    ) -> None:
        for notes in (None, ()):
            answers.heed(notes)
            assert answers.until(desk.time.clock.elapsed()) is None
            answers.look(())
        assert answers.fds() == []

    def test_what_is_asked_for_is_answered_by_a_thread(
        self, desk: Desk, handle: Handle, operator: Operator, answers: HolderAnswers
    ) -> None:
        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        assert answers.until(0.0) == desk.time.clock.elapsed()
        answers.look(())
        assert answers.until(0.0) is None
        settle(answers)
        assert operator.states() == {"T--00": "ready", "T--01": "ready"}
        answers.heed(operator.notes.of_pool("T"))
        assert answers.until(0.0) is None  # all is said

    def test_nothing_stays_open_of_who_answers(
        self, desk: Desk, handle: Handle, operator: Operator
    ) -> None:
        operator.mark(handle)
        answers = HolderAnswers(desk.service, handle, ask=None)
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())
        settle(answers)
        (fd,) = answers.fds()
        answers.close()
        with pytest.raises(OSError):
            os.fstat(fd)

    def test_what_is_asked_for_no_more_is_looked_at_once(
        self, desk: Desk, handle: Handle, operator: Operator, answers: HolderAnswers
    ) -> None:
        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())
        settle(answers)
        operator.take_off()
        answers.heed(())
        assert answers.until(0.0) is not None
        answers.look(())
        settle(answers)
        use(desk.service, whole(handle), "T--00")  # as it isn't ready any more
        answers.heed(())
        assert answers.until(0.0) is None

    def test_what_comes_while_a_thread_looks_is_looked_at_afterwards(
        self,
        desk: Desk,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        looked, may_go_on = threading.Event(), threading.Event()

        def slow(*asked: Any) -> None:
            answer_for_holder(*asked)
            looked.set()
            wait_set(may_go_on)

        with monkeypatch.context() as patch:
            patch.setattr("leasectl.leases.marks.answer_for_holder", slow)
            operator.mark(handle, ["T--00"])
            answers.heed(operator.notes.of_pool("T"))
            answers.look(())
            wait_set(looked)
        operator.mark(handle, ["T--01"])
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())  # one thread looks already
        may_go_on.set()
        settle(answers)
        assert operator.states() == {"T--00": "ready", "T--01": "ready"}

    def test_what_could_not_be_answered_is_tried_again(
        self,
        desk: Desk,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def full(*_: object) -> None:
            raise OSError("no space left")

        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        with monkeypatch.context() as patch:
            patch.setattr("leasectl.leases.marks.answer_for_holder", full)
            answers.look(())
            settle(answers)
        again = answers.until(0.0)
        assert again is not None
        now = desk.time.clock.elapsed()
        assert now < again <= now + 5
        answers.look(())
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}
        desk.time.advance(again - now)
        answers.look(())
        settle(answers)
        assert operator.states() == {"T--00": "ready", "T--01": "ready"}


class TestByACommand:
    """It says by its exit code what can be given back."""

    @pytest.fixture
    def asked(self) -> list[tuple[str, ...]]:
        """What a command was asked about."""
        return []

    @pytest.fixture
    def answers(
        self,
        desk: Desk,
        handle: Handle,
        signals: SignalDescriptor,
        asked: list[tuple[str, ...]],
        tmp_path: Path,
    ) -> Iterator[HolderAnswers]:
        def ask(names: Sequence[str]) -> Child:
            asked.append(tuple(names))
            environ = {**os.environ, "ANSWER": str(tmp_path / "answer")}
            return start_asking('exit "$(cat "$ANSWER")"', names, environ, signals)

        answers = HolderAnswers(desk.service, handle, ask=ask)
        yield answers
        answers.close()

    def test_of_a_lease_on_a_server_our_own_records_are_not_looked_at(
        self, desk: Desk, handle: Handle
    ) -> None:
        def ask(_: Sequence[str]) -> Child:
            raise AssertionError("nothing was noted there")

        far = handle._replace(backend="http://127.0.0.1:1")
        with contextlib.closing(HolderAnswers(desk.service, far, ask=ask)) as answers:
            answers.heed(None)
            assert answers.until(0.0) is None

    @pytest.mark.parametrize(("code", "said"), [(0, "ready"), (1, "keep"), (3, "keep")])
    def test_that_says_yes_or_no_to_all_that_it_is_asked(
        self,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        asked: list[tuple[str, ...]],
        tmp_path: Path,
        code: int,
        said: str,
    ) -> None:
        (tmp_path / "answer").write_text(str(code))
        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())
        settle(answers)
        assert asked == [("T--00", "T--01")]
        assert operator.states() == {"T--00": said, "T--01": said}
        assert answers.until(0.0) is None

    def test_is_not_asked_where_there_is_nothing_to_decide(
        self,
        desk: Desk,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        asked: list[tuple[str, ...]],
    ) -> None:
        for name in handle.names:
            use(desk.service, whole(handle), name)
        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())
        settle(answers)
        assert operator.states() == {"T--00": "keep", "T--01": "keep"}
        assert asked == []

    def test_is_asked_once_and_what_comes_meanwhile_is_looked_at_afterwards(
        self,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        asked: list[tuple[str, ...]],
        tmp_path: Path,
    ) -> None:
        answer = tmp_path / "answer"
        os.mkfifo(answer)  # which the command waits for
        operator.mark(handle, ["T--00"])
        answers.heed(None)  # something has changed in our own records
        answers.look(())
        settle(answers, lambda: asked)
        operator.mark(handle, ["T--01"])
        answers.heed(None)
        answers.look(())
        assert asked == [("T--00",)]
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}
        answer.write_text("0")
        settle(answers, lambda: len(asked) > 1)
        assert asked == [("T--00",), ("T--01",)]
        assert operator.states() == {"T--00": "ready", "T--01": "marked"}
        answer.write_text("1")
        settle(answers)
        assert operator.states() == {"T--00": "ready", "T--01": "keep"}

    def test_that_runs_still_is_ended_with_the_leases_command(
        self,
        handle: Handle,
        operator: Operator,
        answers: HolderAnswers,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        os.mkfifo(tmp_path / "answer")  # which nobody writes to
        operator.mark(handle)
        answers.heed(operator.notes.of_pool("T"))
        answers.look(())
        settle(answers, lambda: answers._child)
        child = answers._child
        assert child is not None
        assert not is_readable(child.end_fd, 0)
        answers.close()
        monkeypatch.setattr(answers, "close", lambda: None)  # which is done once
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}

    def test_reads_nothing_and_writes_to_stderr(
        self, signals: SignalDescriptor, capfd: pytest.CaptureFixture[str]
    ) -> None:
        child = start_asking('cat; echo "$@"', ["a", "b c"], os.environ, signals)
        child.start()
        assert child.reap().code == 0
        child.let_go()
        said = capfd.readouterr()
        assert (said.out, said.err) == ("", "a b c\n")
