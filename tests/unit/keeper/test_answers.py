"""When the keeper answers for holders, and ends marks: in a time that moves by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import claim_key_of
from leasectl.errors import BackendUnreachable, StateUnwritable
from leasectl.keeper.answers import Answers
from leasectl.keeper.job import key_of
from leasectl.keeper.log import Log
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.marks import asked_of
from leasectl.leases.release import arm
from leasectl.leases.service import Service
from leasectl.model import Handle, OnReclaim, Request, whole
from leasectl.state.uses import Uses
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend, register_made_up
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.pool_changes import add_resources
from tests.kit.reclaiming import Operator
from tests.kit.recorded import watched
from tests.kit.waits import wait_readable

START = 1000.0  # of a manual clock
GOOD_FOR = 100.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def answers(desk: Desk, log: Path) -> Answers:
    desk.pool(3)
    clock = desk.time.clock
    return Answers(desk.service, Log(str(log), clock))


def held(desk: Desk, on_reclaim: OnReclaim) -> Handle:
    return desk.acquire(Request("T", on_reclaim=on_reclaim))


def operator(desk: Desk, handle: Handle) -> Operator:
    return Operator(desk.service.backend_of(handle).notes, seconds=GOOD_FOR)


def marked(desk: Desk, on_reclaim: OnReclaim) -> tuple[Handle, Operator]:
    """What somebody holds and is wanted back, and who wants it."""
    handle = held(desk, on_reclaim)
    reclaim = operator(desk, handle)
    reclaim.mark(handle)
    return handle, reclaim


def go(desk: Desk, answers: Answers) -> float | None:
    """A round after the other, until nothing is due now."""
    for _ in range(20):
        due = answers.go({key_of(each) for each in watched(desk.state)})
        if due is None or due > desk.time.clock.elapsed():
            return due
    pytest.fail("it goes on for ever")


def test_it_has_nothing_to_do_as_long_as_nobody_is_asked(desk: Desk, answers: Answers) -> None:
    held(desk, "release")
    assert go(desk, answers) is None


@pytest.mark.parametrize(("on_reclaim", "said"), [("release", "ready"), ("keep", "keep")])
def test_it_answers_at_once_and_ends_the_mark_in_time(
    desk: Desk, answers: Answers, log: Path, on_reclaim: OnReclaim, said: str
) -> None:
    handle, reclaim = marked(desk, on_reclaim)
    assert go(desk, answers) == START + (2.0 if said == "ready" else GOOD_FOR)
    assert reclaim.states() == {"T--00": said}
    assert f"answered for {handle.id}: T--00 {said}" in log.read_text()
    desk.time.advance(GOOD_FOR - 1)
    assert go(desk, answers) == START + GOOD_FOR
    assert reclaim.states() == {"T--00": said}
    desk.time.advance(1)
    assert go(desk, answers) is None
    assert reclaim.states() == {}


def test_it_leaves_the_answer_to_a_script_and_ends_the_mark(desk: Desk, answers: Answers) -> None:
    _, reclaim = marked(desk, "answer")
    assert go(desk, answers) == START + GOOD_FOR
    assert reclaim.states() == {"T--00": "marked"}
    desk.time.advance(GOOD_FOR)
    go(desk, answers)
    assert reclaim.states() == {}


def test_it_sends_what_was_decided_by_somebody_who_was_killed(desk: Desk, answers: Answers) -> None:
    handle = held(desk, "answer")
    reclaim = operator(desk, handle)
    (mark,) = reclaim.mark(handle)
    asked_of(desk.service, whole(handle))
    with desk.state.transaction():
        Uses(desk.state).decide(handle, "T--00", mark.id, is_ready=True)
    desk.time.advance(5)
    assert go(desk, answers) in (START + 7, START + GOOD_FOR)
    desk.time.advance(2)
    go(desk, answers)
    assert reclaim.states() == {"T--00": "ready"}


def test_it_sees_no_longer_to_who_isnt_asked_any_more(desk: Desk, answers: Answers) -> None:
    plain, delayed = held(desk, "keep"), held(desk, "keep")
    arm(desk.service, whole(delayed), 500.0)
    for handle in (plain, delayed):
        operator(desk, handle).mark(handle)
    go(desk, answers)
    assert {each.id for each in watched(desk.state)} == {plain.id, delayed.id}
    operator(desk, plain).take_off()
    go(desk, answers)
    desk.time.advance(1)
    go(desk, answers)
    assert [each.id for each in watched(desk.state)] == [delayed.id]


def test_what_could_not_be_answered_is_tried_again_after_ever_longer_pauses(
    desk: Desk, answers: Answers, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = held(desk, "release")
    operator(desk, handle).mark(handle)
    tried: list[float] = []

    def full(*_: object) -> None:
        tried.append(desk.time.clock.elapsed())
        raise StateUnwritable("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("leasectl.keeper.answers.answered", full)
        assert go(desk, answers) == START + 1
        desk.time.advance(0.5)
        assert go(desk, answers) == START + 1
        desk.time.advance(0.5)
        assert go(desk, answers) == START + 3
        desk.time.advance(2)
        assert go(desk, answers) == START + 7
    assert tried == [START, START + 1, START + 3]
    assert f"can't answer for {handle.id}: no space left; next try in 4s" in log.read_text()
    desk.time.advance(4)
    assert go(desk, answers) == START + 7 + 2  # nothing has failed any more
    assert operator(desk, handle).states() == {"T--00": "ready"}
    assert f"answered for {handle.id}: T--00 ready" in log.read_text()


def test_it_answers_one_handle_once_a_second(desk: Desk, answers: Answers) -> None:
    handle, reclaim = marked(desk, "keep")
    go(desk, answers)
    desk.time.advance(0.5)
    reclaim.take_off()
    reclaim.mark(handle)
    assert go(desk, answers) == START + 1
    assert reclaim.states() == {"T--00": "marked"}
    desk.time.advance(0.5)
    assert go(desk, answers) == START + 1 + GOOD_FOR
    assert reclaim.states() == {"T--00": "keep"}


def test_it_sees_to_who_is_asked_again_before_it_has_let_go(desk: Desk, answers: Answers) -> None:
    handle, reclaim = marked(desk, "release")
    go(desk, answers)
    reclaim.take_off()
    desk.time.advance(1)
    answers.go({key_of(handle)})  # has seen that, and would let go of it in the next round
    reclaim.mark(handle)
    assert go(desk, answers) == START + 2
    desk.time.advance(1)
    go(desk, answers)
    assert reclaim.states() == {"T--00": "ready"}


def test_it_tells_of_what_was_answered_and_of_nothing_else(
    desk: Desk, answers: Answers, log: Path
) -> None:
    handle = held(desk, "answer")
    operator(desk, handle).mark(handle)
    go(desk, answers)
    assert not log.exists()
    desk.time.advance(GOOD_FOR)
    go(desk, answers)
    assert log.read_text().endswith(f"{handle.id}: T--00 no longer has a reclaim request\n")


class TestOnAServer:
    """Where threads answer, each with a service of its own."""

    @pytest.fixture
    def service(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Service:
        register_made_up(monkeypatch)
        store = MadeUpStore(desk.time.clock)
        backend = MadeUpBackend(
            "madeup://here", MadeUpEngine(store), store.sides, clock=desk.time.clock
        )
        monkeypatch.setattr(MadeUpBackend, "open", lambda context, state, lost: backend)
        service = desk.as_caller(desk.caller, "madeup://here")
        service.pools.create_pool("T", ["T--00"])
        return service

    @pytest.fixture
    def handle(self, service: Service) -> Handle:
        handle = acquire(service, Request("T", on_reclaim="release"), patience=Patience())
        announce(service, handle, guard=this_process())
        return service.handles.require(handle.id)

    @pytest.fixture
    def answers(self, desk: Desk, service: Service, log: Path) -> Answers:
        clock = desk.time.clock
        return Answers(desk.service, Log(str(log), clock))

    def asked(self, service: Service, handle: Handle, answers: Answers) -> Operator:
        """Somebody who wants it back, as a renewal has told."""
        operator = Operator(service.notes, seconds=GOOD_FOR)
        operator.mark(handle)
        answers.heed(handle, service.notes.of_claims(claim_key_of(handle)))
        return operator

    def heard(self, answers: Answers) -> None:
        assert answers.fd is not None
        wait_readable(answers.fd)
        answers.take_outcomes()

    def test_it_is_a_threads_to_answer_what_a_renewal_has_told_of(
        self, desk: Desk, service: Service, handle: Handle, answers: Answers, log: Path
    ) -> None:
        assert go(desk, answers) is None
        operator = self.asked(service, handle, answers)
        assert answers.fd is None
        assert go(desk, answers) is None
        self.heard(answers)
        assert operator.states() == {"T--00": "ready"}
        assert f"answered for {handle.id}: T--00 ready" in log.read_text()
        assert go(desk, answers) == START + 2  # what was told before is no reason any more

    @pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "not seen yet"])
    def test_what_a_thread_could_not_answer_is_asked_of_one_again(
        self,
        is_seen: bool,
        desk: Desk,
        service: Service,
        handle: Handle,
        answers: Answers,
        log: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def unreachable(*_: object) -> None:
            raise BackendUnreachable("no answer")

        operator = self.asked(service, handle, answers)
        if is_seen:  # by somebody who couldn't say so
            asked_of(service, whole(handle))
        with monkeypatch.context() as patch:
            patch.setattr("leasectl.keeper.answers.answered", unreachable)
            go(desk, answers)
            self.heard(answers)
        assert f"can't answer for {handle.id}: no answer; next try in 1s" in log.read_text()
        assert go(desk, answers) == START + 1
        desk.time.advance(1)
        go(desk, answers)
        self.heard(answers)
        assert operator.states() == {"T--00": "ready"}

    def test_what_is_decided_and_does_not_reach_it_in_two_seconds_a_thread_sends_once(
        self, desk: Desk, service: Service, answers: Answers
    ) -> None:
        add_resources(service.members, "T", ["T--01"])
        request = Request("T", count=2, on_reclaim="answer")
        handle = acquire(service, request, patience=Patience())
        announce(service, handle, guard=this_process())
        operator = Operator(service.notes, seconds=GOOD_FOR)
        marks = dict(zip(handle.names, operator.mark(desk.record(handle))))
        asked_of(service, whole(handle))
        said = dict.fromkeys(handle.names, "marked")
        for name, decided_at in (("T--00", START), ("T--01", START + 2)):
            with desk.state.transaction():  # by a script, which is killed then
                Uses(desk.state).decide(desk.record(handle), name, marks[name].id, is_ready=True)
            assert go(desk, answers) == decided_at + 2
            desk.time.advance(1.75)
            assert go(desk, answers) == decided_at + 2
            assert operator.states() == said
            desk.time.advance(0.25)
            assert go(desk, answers) is None
            self.heard(answers)
            said[name] = "ready"
            assert operator.states() == said
            assert go(desk, answers) == START + GOOD_FOR

    def test_what_nothing_is_noted_at_is_left_alone(
        self, desk: Desk, handle: Handle, answers: Answers
    ) -> None:
        answers.heed(handle, ())
        assert go(desk, answers) is None
        assert answers.fd is None

    def test_what_is_asked_for_no_more_can_be_used_again_once_a_renewal_tells_of_nothing(
        self, desk: Desk, service: Service, handle: Handle, answers: Answers
    ) -> None:
        operator = self.asked(service, handle, answers)
        go(desk, answers)
        self.heard(answers)
        operator.take_off()
        desk.time.advance(1)
        assert go(desk, answers) == START + 3  # when it is to be seen whether that was sent
        assert set(Uses(desk.state).marks(desk.record(handle))) == {"T--00"}
        answers.heed(handle, ())
        go(desk, answers)
        self.heard(answers)
        assert Uses(desk.state).marks(desk.record(handle)) == {}
        assert go(desk, answers) is None
