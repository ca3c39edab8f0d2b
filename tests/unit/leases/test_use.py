"""In use and ready exclude each other, where the holder is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Caller
from leasectl.engines.notes import NoteChange
from leasectl.errors import LeaseLost, NotAllowed
from leasectl.leases import marks
from leasectl.leases.marks import (
    Answered,
    answer,
    answer_for_holder,
    asked_of,
    encode_mark,
    unuse,
    use,
)
from leasectl.leases.marks import (
    carry_out as carry_out_now,
)
from leasectl.leases.release import release
from leasectl.model import Handle, OnReclaim, ReleaseTarget, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.uses import Uses
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server
from tests.kit.reclaiming import Operator

TWO = Request("T", count=2)


@pytest.fixture
def operator(desk: Desk) -> Operator:
    desk.pool(3)
    return Operator(desk.service.backend_of(desk.acquire(Request("T", name="T--02"))).notes)


def in_use(desk: Desk, handle: Handle) -> set[str]:
    return set(Uses(desk.state).in_use(desk.record(handle)))


def ready(desk: Desk, handle: Handle) -> set[str]:
    return set(Uses(desk.state).ready(desk.record(handle)))


def just_before(patch: pytest.MonkeyPatch, something: Callable[[], object]) -> None:
    """Have something happen before an answer is carried out that was decided on without it."""

    def carry_out(*args: Any) -> Any:
        something()
        return carry_out_now(*args)

    patch.setattr(marks, "carry_out", carry_out)


class TestUse:
    def test_is_of_what_is_held_and_isnt_counted(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        use(desk.service, whole(handle), "T--00")
        use(desk.service, whole(handle), "T--00")
        assert in_use(desk, handle) == {"T--00"}
        assert unuse(desk.service, whole(handle), "T--00")
        assert not unuse(desk.service, whole(handle), "T--00")
        assert in_use(desk, handle) == set()

    def test_of_what_isnt_held_is_refused(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        with pytest.raises(NotAllowed, match=r'doesn\'t hold "T--02"'):
            use(desk.service, whole(handle), "T--02")
        release(desk.service, whole(handle))
        with pytest.raises(NotAllowed, match="doesn't hold"):
            use(desk.service, whole(handle), "T--00")

    def test_of_what_is_lost_says_so(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        desk.service.pools.end_early(handle.id, handle.names, guard=None, reason="an admin")
        with pytest.raises(LeaseLost, match="reacquire"):
            use(desk.service, whole(handle), "T--00")


class TestAMark:
    def test_that_was_answered_ready_keeps_from_using(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle, ["T--00"])
        assert answer(desk.service, whole(handle), "ready") == ("T--00",)
        assert operator.states() == {"T--00": "ready"}
        ends_at = desk.time.clock.wall() + 100
        for passed, when in ((0, "(in 1m40s)"), (99, "(in 1s)"), (0.5, "any moment")):
            desk.time.advance(passed)
            with pytest.raises(NotAllowed, match="reclaim of ops@desk ") as refused:
                use(desk.service, whole(handle), "T--00")
            assert when in str(refused.value)
            if when != "any moment":
                ends = time.strftime("%H:%M:%S UTC", time.gmtime(ends_at))
                assert f"by {ends}" in str(refused.value)
        use(desk.service, whole(handle), "T--01")

    def test_of_what_is_in_use_cant_be_answered_ready(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        use(desk.service, whole(handle), "T--00")
        with pytest.raises(NotAllowed, match="T--00: in use, so it can't be ready"):
            answer(desk.service, whole(handle), "ready", ["T--00", "T--01"])
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}
        assert answer(desk.service, whole(handle), "ready") == ("T--01",)
        assert operator.states() == {"T--00": "marked", "T--01": "ready"}

    def test_that_the_keeper_has_sent_first_is_given(
        self, desk: Desk, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle, ["T--00"])

        def too_late(*steps: Any) -> dict[str, Answered]:
            carry_out_now(*steps)
            return {}

        monkeypatch.setattr(marks, "carry_out", too_late)
        assert answer(desk.service, whole(handle), "ready", ["T--00"]) == ("T--00",)

    def test_that_was_answered_may_still_be_kept(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        answer(desk.service, whole(handle), "ready")
        assert answer(desk.service, whole(handle), "keep", ["T--00"]) == ("T--00",)
        assert operator.free() == ("T--01",)
        use(desk.service, whole(handle), "T--00")

    def test_keep_is_the_last_word(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        answer(desk.service, whole(handle), "keep")
        with pytest.raises(NotAllowed, match="final"):
            answer(desk.service, whole(handle), "ready", ["T--00"])
        assert answer(desk.service, whole(handle), "ready") == ()
        assert operator.free() == ()

    def test_may_be_heeded_before_it_is_known_to_be_sent(
        self, desk: Desk, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = desk.acquire(TWO)

        def answer_unheard(said: Answered, heed: Callable[[], object]) -> tuple[str, ...]:
            def carry_out(*args: Any) -> dict[str, Answered]:
                carry_out_now(*args)
                heed()
                return {}

            operator.mark(handle, ["T--00"])
            monkeypatch.setattr(marks, "carry_out", carry_out)
            return answer(desk.service, whole(handle), said, ["T--00"])

        def ask_anew() -> None:
            operator.take_off()
            operator.mark(handle, ["T--00"])

        assert answer_unheard("keep", operator.take_off) == ("T--00",)
        use(desk.service, whole(handle), "T--00")
        unuse(desk.service, whole(handle), "T--00")
        with pytest.raises(NotAllowed, match="the request has changed meanwhile"):
            answer_unheard("keep", ask_anew)
        operator.take_off()
        with pytest.raises(NotAllowed, match="the request has changed meanwhile"):
            answer_unheard("ready", operator.take_off)
        assert answer_unheard("ready", operator.free) == ("T--00",)
        assert desk.names_file(handle) == "T--01"

    def test_of_what_comes_into_use_just_before_it_is_answered_is_kept(
        self, desk: Desk, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = desk.acquire(TWO)
        just_before(monkeypatch, lambda: use(desk.service, whole(handle), "T--00"))
        operator.mark(handle)
        assert answer(desk.service, whole(handle), "ready") == ("T--01",)
        assert operator.states() == {"T--00": "keep", "T--01": "ready"}
        unuse(desk.service, whole(handle), "T--00")
        operator.take_off()
        operator.mark(handle)
        with pytest.raises(NotAllowed, match="T--00: the request has changed meanwhile"):
            answer(desk.service, whole(handle), "ready", ["T--00", "T--01"])

    def test_is_gone_with_what_was_released_just_before_it_was_answered(
        self, desk: Desk, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        just_before(monkeypatch, lambda: release(desk.service, whole(handle)))
        assert answer(desk.service, whole(handle), "ready") == ("T--00", "T--01")
        assert operator.states() == {}
        assert Uses(desk.state).marks(handle) == {}

    def test_that_was_taken_off_lets_it_be_used_again(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        answer(desk.service, whole(handle), "ready")
        operator.take_off()
        with pytest.raises(NotAllowed):
            use(desk.service, whole(handle), "T--00")  # nobody has looked
        assert asked_of(desk.service, whole(handle)) == ()
        use(desk.service, whole(handle), "T--00")


class TestWhatWasTakenBack:
    def test_all_of_it_leaves_a_released_handle(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)
        answer(desk.service, whole(handle), "ready")
        assert operator.free() == handle.names
        record = desk.record(handle)
        assert (record.names, record.state, record.lost) == ((), "released", False)
        assert len(desk.reacquire(handle).names) == 2

    def test_leaves_the_list_of_scope_test(
        self, desk: Desk, operator: Operator, tmp_path: Path
    ) -> None:
        service = desk.as_caller(Caller("job/1", "host", str(tmp_path)))
        desk.service = service
        handle = desk.acquire(TWO._replace(scope="test"))
        listed = tmp_path / "leases"
        assert listed.read_text().split() == ["T--00", "T--01"]
        ours = Operator(service.backend_of(handle).notes)
        ours.mark(handle, ["T--00"])
        answer(service, whole(handle), "ready")
        assert ours.free() == ("T--00",)
        service.losses.unlist()
        assert listed.read_text().split() == ["T--01"]


class TestAnAnswerForTheHolder:
    @pytest.mark.parametrize("is_ready", [True, False])
    def test_that_is_ready_has_a_keeper_which_takes_it_off_once_it_has_ended(
        self, desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch, is_ready: bool
    ) -> None:
        desk.service = desk.as_caller(desk.caller, URL)
        on_reclaim: OnReclaim = "release" if is_ready else "keep"
        handle = desk.acquire(Request("T", ttl_seconds=60.0, on_reclaim=on_reclaim))
        Operator(server.notes).mark(handle)
        told: list[str] = []
        monkeypatch.setattr(keeper_process, "ensure", lambda _: told.append("is there"))
        of_desk = desk.state  # the server has a state of its own

        def wake(state: State) -> None:
            if state is of_desk:
                told.append("is woken")

        monkeypatch.setattr(keeper_process, "wake", wake)
        assert not desk.service.handles.any_watched()
        answer_for_holder(desk.service, whole(handle))
        assert told == (["is there", "is woken"] if is_ready else [])
        assert desk.service.handles.any_watched() == is_ready

    def test_and_its_end_are_told(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(Request("T", on_reclaim="release"))
        operator.mark(handle)
        answer_for_holder(desk.service, whole(handle))
        desk.time.advance(100)
        answer_for_holder(desk.service, whole(handle))
        told = [each.reason for each in desk.service.events.read() if each.handle == handle.id]
        assert told[-2:] == ["answered ready", "the mark has expired (the last answer was ready)"]

    def test_is_left_to_its_script(self, desk: Desk, operator: Operator) -> None:
        handle = desk.acquire(TWO._replace(on_reclaim="answer"))
        operator.mark(handle)
        assert answer_for_holder(desk.service, whole(handle)) == {}
        assert {mark.ends_at for mark in Uses(desk.state).marks(handle).values()} == {1100.0}
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}

    def test_keeps_what_comes_into_use_while_it_is_decided(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO)
        operator.mark(handle)

        def decide(names: Sequence[str]) -> dict[str, Answered]:
            use(desk.service, whole(handle), "T--00")
            return dict.fromkeys(names, "ready")

        answer_for_holder(desk.service, whole(handle), decide)
        assert operator.states() == {"T--00": "keep", "T--01": "ready"}

    def test_takes_off_what_has_ended_and_then_it_can_be_used(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO._replace(on_reclaim="release"))
        operator.mark(handle, ["T--00"])
        answer_for_holder(desk.service, whole(handle))
        desk.time.advance(99)
        answer_for_holder(desk.service, whole(handle))
        assert operator.states() == {"T--00": "ready"}
        desk.time.advance(1)
        with pytest.raises(NotAllowed, match="any moment"):
            use(desk.service, whole(handle), "T--00")
        assert answer_for_holder(desk.service, whole(handle)) == {"T--00": None}
        assert operator.states() == {}
        use(desk.service, whole(handle), "T--00")

    def test_goes_on_where_somebody_was_killed_before_he_sent_it(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO._replace(on_reclaim="keep"))
        (mark,) = operator.mark(handle, ["T--00"])
        asked_of(desk.service, whole(handle))
        with desk.state.transaction():
            Uses(desk.state).decide(desk.record(handle), "T--00", mark.id, is_ready=True)
        answer_for_holder(desk.service, whole(handle))
        assert operator.states() == {"T--00": "ready"}
        assert ready(desk, handle) == {"T--00"}

    def test_that_could_not_be_recorded_counts_as_soon_as_somebody_looks(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO)
        (mark,) = operator.mark(handle, ["T--00"])
        (marks,) = asked_of(desk.service, whole(handle))
        assert not marks.is_ready
        (note,) = operator.notes.of_pool("T")
        answered = encode_mark(mark.answered("ready"))
        operator.notes.change([NoteChange(note.type, note.name, note.fence, note.text, answered)])
        (marks,) = asked_of(desk.service, whole(handle))
        assert marks.is_ready
        assert ready(desk, handle) == {"T--00"}
        with pytest.raises(NotAllowed, match='was "ready"'):
            use(desk.service, whole(handle), "T--00")

    def test_that_says_ready_of_what_is_in_use_is_taken_back(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO)
        (mark,) = operator.mark(handle, ["T--00"])
        asked_of(desk.service, whole(handle))
        use(desk.service, whole(handle), "T--00")
        (note,) = operator.notes.of_pool("T")
        answered = encode_mark(mark.answered("ready"))
        operator.notes.change([NoteChange(note.type, note.name, note.fence, note.text, answered)])
        assert answer_for_holder(desk.service, whole(handle)) == {"T--00": "keep"}
        assert operator.states() == {"T--00": "keep"}
        assert ready(desk, handle) == set()
        assert answer_for_holder(desk.service, whole(handle)) == {}

    def test_is_given_of_nothing_that_is_not_held_any_more_or_nobody_can_ask_for(
        self, desk: Desk, operator: Operator
    ) -> None:
        handle = desk.acquire(TWO._replace(on_reclaim="release"))
        operator.mark(handle)
        assert answer_for_holder(desk.service, ReleaseTarget(handle.id, 2)) == {}
        assert operator.states() == {"T--00": "marked", "T--01": "marked"}
        desk.service = desk.as_caller(desk.caller, "none:")
        elsewhere = desk.acquire(Request("T", on_reclaim="release"))
        assert answer_for_holder(desk.service, whole(elsewhere)) == {}
