"""leasectl.leases.marks: whether what is noted at a handle's claims wants to be seen to."""

from __future__ import annotations

import pytest

from leasectl.engines.local.notes import LocalNotes
from leasectl.engines.notes import Note, NoteChange
from leasectl.errors import NotAllowed
from leasectl.leases.marks import (
    Mark,
    MarkState,
    answer,
    asked_of,
    encode_mark,
    held_of,
    needs_answer,
    use,
)
from leasectl.leases.release import release
from leasectl.leases.release_forced import release_by_force
from leasectl.model import Request, whole
from leasectl.state.uses import SeenMark, Uses
from tests.kit.desk import Desk
from tests.kit.reclaiming import Operator

MARK = Mark("0123456789abcdef", "ops@desk", "marked", 360.0, 1_700_000_000.5)
SEEN = SeenMark(MARK.id, MARK.asked_by, 500.0, is_ready=False)
NOW = 499.9


def needs(
    state: MarkState | None, seen: SeenMark | None, *, now: float = NOW, is_answered_here: bool
) -> bool:
    """Of what is noted at one claim, or nothing is, and has been seen before, or nothing has."""
    text = "" if state is None else encode_mark(MARK._replace(state=state))
    before = {} if seen is None else {"T--00": seen}
    return needs_answer(
        [Note("T", "T--00", 7, text)], before, now, is_answered_here=is_answered_here
    )


@pytest.mark.parametrize("is_answered_here", [True, False])
class TestWhoeverAnswers:
    def test_sees_to_what_is_new_or_has_gone(self, is_answered_here: bool) -> None:
        another = SEEN._replace(id="another")
        for state, seen in (("marked", None), ("marked", another), (None, SEEN), ("keep", another)):
            assert needs(state, seen, is_answered_here=is_answered_here)  # type: ignore[arg-type]

    def test_sees_to_what_has_ended(self, is_answered_here: bool) -> None:
        assert needs("keep", SEEN, now=SEEN.ends_at, is_answered_here=is_answered_here)

    def test_sees_to_an_answer_that_is_not_on_record(self, is_answered_here: bool) -> None:
        ready = SEEN._replace(is_ready=True)
        assert needs("ready", SEEN, is_answered_here=is_answered_here)
        assert needs("keep", ready, is_answered_here=is_answered_here)
        assert not needs("ready", ready, is_answered_here=is_answered_here)
        assert not needs("keep", SEEN, is_answered_here=is_answered_here)


def test_what_another_has_seen_since_is_not_what_is_told_now(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(2)
    handle = desk.acquire(Request("T", 2))
    operator = Operator(desk.service.notes)
    operator.mark(handle, ["T--00"])
    asked_of(desk.service, whole(handle))
    operator.mark(handle, ["T--01"])
    look = LocalNotes.of_claims
    newer: list[Mark] = []

    def slow_look(notes: LocalNotes, claim_key: str) -> tuple[Note, ...]:
        """Meanwhile the first is asked for anew, and another has seen that."""
        found = look(notes, claim_key)
        with monkeypatch.context() as patch:
            patch.setattr(LocalNotes, "of_claims", look)
            for note in [each for each in found if each.name == "T--00"]:
                desk.service.notes.change(
                    [NoteChange(note.type, note.name, note.fence, note.text, None)]
                )
            newer.extend(operator.mark(handle, ["T--00"]))
            asked_of(desk.service, whole(handle))
        return found

    monkeypatch.setattr(LocalNotes, "of_claims", slow_look)
    assert [each.name for each in asked_of(desk.service, whole(handle))] == ["T--01"]
    assert Uses(desk.state).marks(handle)["T--00"].id == newer[0].id


def test_what_is_released_while_somebody_looks_is_nobodys_to_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(1)
    handle = desk.acquire()
    Operator(desk.service.notes).mark(handle)
    look = LocalNotes.of_claims

    def slow_look(notes: LocalNotes, claim_key: str) -> tuple[Note, ...]:
        found = look(notes, claim_key)
        release(desk.service, whole(handle))
        return found

    monkeypatch.setattr(LocalNotes, "of_claims", slow_look)
    assert asked_of(desk.service, whole(handle)) == ()
    assert Uses(desk.state).marks(handle) == {}


def test_what_was_taken_by_force_is_not_held_though_it_is_kept_still(desk: Desk) -> None:
    desk.pool(3)
    handle, _ = desk.acquire(Request("T", 2, ttl_seconds=60.0)), desk.acquire()
    backend = desk.service.backend_of(handle)
    assert held_of(backend, handle) == {"T--00": None, "T--01": None}
    release_by_force(desk.service, ["T--00"], reason="")
    assert held_of(backend, handle) == {"T--01": None}


def test_what_seemed_over_and_has_been_renewed_since_is_ready_still(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kubernetes, where a claim is over when nobody was seen to renew it for long enough."""
    desk.pool(1)
    handle = desk.acquire(Request("T", on_reclaim="answer"))
    operator = Operator(desk.service.notes)
    operator.mark(handle)
    assert answer(desk.service, whole(handle), "ready") == ("T--00",)
    with monkeypatch.context() as patch:
        patch.setattr(LocalNotes, "of_claims", lambda notes, claim_key: ())
        assert asked_of(desk.service, whole(handle)) == ()
    with pytest.raises(NotAllowed, match="can't be used"):
        use(desk.service, whole(handle), "T--00")
    assert operator.free() == ("T--00",)
    asked_of(desk.service, whole(handle))
    record = desk.record(handle)
    assert (record.state, record.lost) == ("released", False)


def test_what_is_marked_is_answered_by_whoever_does_that_here() -> None:
    assert needs("marked", SEEN, is_answered_here=True)
    assert not needs("marked", SEEN, is_answered_here=False)
