"""A whole reclaim on pools in memory, with holders that answer, in a time that moves by hand."""

from __future__ import annotations

import pytest

from leasectl.engines.notes import NoteChange
from leasectl.errors import BackendUnreachable, Interrupted
from leasectl.leases.marks import encode_mark, new_mark
from leasectl.model import Lease
from leasectl.reclaim.plan import Wanted
from leasectl.reclaim.taking_back import Listener, Outcome, take_back
from leasectl.state.uses import LastUse
from tests.unit.reclaim.world import ALL, DELAY, WAIT, World

pytestmark = pytest.mark.once


def test_what_holders_are_ready_to_give_back_is_freed_after_the_delay(world: World) -> None:
    def answer() -> None:
        if world.passed >= DELAY and world.marks():
            for name in ("T--0", "T--1"):
                world.answer(name, "ready")

    assert world.run(ALL, then=answer)[:2] == (("T--0", "T--1"), 0)
    assert DELAY <= world.passed < DELAY + 1
    assert world.freed == ["T--0", "T--1"]
    assert [each.by for each in world.sides.events.read() if each.kind == "released"] == [
        "reclaim"
    ] * 2
    assert world.changes == 1
    assert world.marks() == {}


def test_those_that_do_not_answer_keep_what_they_have_and_their_marks_go(world: World) -> None:
    assert world.run(ALL)[:2] == ((), 2)
    assert world.passed == DELAY + WAIT
    assert world.marks() == {}
    assert world.engine.renew("one") == ("T--0", "T--1")


def test_a_use_that_has_ended_begins_the_delay_anew(world: World) -> None:
    world.uses["one", "T--0"] = LastUse(0, world.began_at + 50)
    asked: dict[str, float] = {}

    def note_marks() -> None:
        for name in world.marks():
            asked.setdefault(name, world.passed)

    world.run(ALL, then=note_marks)
    assert asked["T--1"] < DELAY + 1
    assert DELAY + 50 <= asked["T--0"] < DELAY + 51


def test_lease_that_its_holder_renews_as_it_is_freed_is_freed_a_moment_later(world: World) -> None:
    world.writes_between = 2

    def answer() -> None:
        for name in world.marks():
            world.answer(name, "ready")

    assert world.run(ALL, then=answer)[:2] == (("T--0", "T--1"), 0)
    assert world.passed < DELAY + 1


def test_one_that_was_interrupted_takes_its_marks_off(world: World) -> None:
    steps = take_back(world.ground(), ALL, Listener(world.freed.extend))
    next(steps)
    world.time.advance(DELAY)
    steps.send(set())
    assert len(world.marks()) == 2
    with pytest.raises(Interrupted):
        steps.throw(Interrupted(15))
    assert world.marks() == {}


def test_a_mark_that_is_answered_just_as_it_is_taken_off_goes_all_the_same(world: World) -> None:
    is_interrupted = False

    def uses() -> dict[tuple[str, str], LastUse]:
        if is_interrupted and '"marked"' in world.marks()["T--0"].text:
            world.answer("T--0", "ready")  # after the look at what is noted
        return {}

    steps = take_back(world.ground()._replace(uses=uses), ALL, Listener(world.freed.extend))
    next(steps)
    world.time.advance(DELAY)
    steps.send(set())
    is_interrupted = True
    with pytest.raises(Interrupted):
        steps.throw(Interrupted(15))
    assert world.marks() == {}
    assert world.freed == []


def test_one_that_was_killed_is_resumed_with_the_answers_that_its_marks_have_had(
    world: World,
) -> None:
    steps = take_back(world.ground(), ALL, Listener(world.freed.extend))
    next(steps)
    world.time.advance(DELAY)
    steps.send(set())
    world.answer("T--0", "ready")
    left = world.marks()
    killed_at = world.passed
    outcome = world.run(ALL._replace(wait_seconds=10.0))
    assert left["T--1"].text not in [each.text for each in world.marks().values()]
    assert outcome[:2] == (("T--0",), 1)
    assert world.passed < killed_at + 11 + DELAY
    steps.close()


def test_two_at_once_free_each_lease_once_and_both_are_content(world: World) -> None:
    both = Listener(world.freed.extend)
    first, second = (take_back(world.ground(), ALL, both) for _ in range(2))
    next(first), next(second)
    world.time.advance(DELAY)
    first.send(set()), second.send(set())
    for name in ("T--0", "T--1"):
        world.answer(name, "ready")
    outcomes: list[Outcome] = []
    for each in (first, second):
        try:
            for _ in range(10):
                world.time.advance(0.2)
                each.send({0})
        except StopIteration as end:
            outcomes.append(end.value)
    assert sorted(world.freed) == ["T--0", "T--1"]
    assert [each.missing for each in outcomes] == [0, 0]


def test_where_somebody_was_faster_another_is_asked_for_at_once(world: World) -> None:
    wanted = Wanted(excess=1, delay_seconds=DELAY, wait_seconds=WAIT)
    first = new_mark("another", seconds=WAIT, now=0.0).answered("keep")
    is_first = True

    def uses() -> dict[tuple[str, str], LastUse]:
        nonlocal is_first
        if world.passed >= DELAY and is_first:  # after the look at what is noted
            is_first = False
            fence = next(each.fence for each in leases_of(world) if each.name == "T--0")
            change = NoteChange("T", "T--0", fence, None, encode_mark(first))
            assert world.sides.notes.change([change]) == (True,)
        return {}

    def answer() -> None:
        for name, note in world.marks().items():
            if '"marked"' in note.text:
                world.answer(name, "ready")

    steps = take_back(world.ground()._replace(uses=uses), wanted, Listener(world.freed.extend))
    assert world.go_through(steps, then=answer)[:2] == (("T--1",), 0)
    assert world.passed < DELAY + 1
    assert world.marks() == {}


def test_people_are_told_how_many_are_to_come_back_and_how_many_are_asked_for(
    world: World,
) -> None:
    said: list[tuple[int, int]] = []
    listener = Listener(
        world.freed.extend, progress=lambda each: said.append((each.missing, each.asked))
    )

    def answer() -> None:
        if "T--0" in world.marks() and "T--0" not in world.freed:
            world.answer("T--0", "ready")

    steps = take_back(world.ground(), ALL, listener)
    world.go_through(steps, then=answer)
    assert list(dict.fromkeys(said)) == [(2, 0), (2, 2), (1, 1)]


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_what_was_ready_before_a_restart_is_freed_a_delay_after_its_mark_was_made(
    world: World, ahead: float
) -> None:
    steps = take_back(world.ground(), ALL, Listener(world.freed.extend))
    next(steps)
    world.time.advance(DELAY)
    steps.send(set())
    marked_at = world.passed
    for name in ("T--0", "T--1"):
        world.answer(name, "ready")
    world.time.advance(50.0)
    world.time.put_back(ahead)  # the clock of the new operator: the mark's time lies ahead of it
    again = take_back(world.ground(), ALL, Listener(world.freed.extend))
    assert world.go_through(again, then=lambda: None)[:2] == (("T--0", "T--1"), 0)
    waited = world.passed - marked_at
    assert waited == pytest.approx(DELAY if not ahead else 50.0 + DELAY, abs=0.5)
    steps.close()


def test_each_name_that_was_not_freed_has_one_reason(world: World) -> None:
    world.uses["two", "T--2"] = LastUse(0, None)
    wanted = ALL._replace(names=frozenset({"T--0", "T--1", "T--2", "T--3"}))

    def answer() -> None:
        if "T--0" in world.marks() and '"marked"' in world.marks()["T--0"].text:
            world.answer("T--0", "keep")

    outcome = world.run(wanted, then=answer)
    assert outcome[:2] == ((), 3)
    assert {each.name: each.reason for each in outcome.not_freed} == {
        "T--0": "its holder keeps it",
        "T--1": "no answer within 1m",
        "T--2": "in use",
        "T--3": "not held",
    }


def test_a_name_that_its_holder_gave_back_is_said_to_be_so(world: World) -> None:
    outcome = world.run(ALL, then=lambda: world.engine.free("one"))
    assert [tuple(each) for each in outcome.not_freed] == [
        ("T--0", "given back by its holder"),
        ("T--1", "given back by its holder"),
    ]


def test_it_asks_only_while_fewer_than_wanted_are_free(world: World) -> None:
    wanted = Wanted(excess=2, delay_seconds=DELAY, wait_seconds=WAIT, follows=True, until_free=2)

    def answer() -> None:
        for name, note in world.marks().items():
            if '"marked"' in note.text:
                world.answer(name, "ready")

    steps = take_back(world.ground(), wanted, Listener(world.freed.extend))
    with pytest.raises(AssertionError, match="goes on and on"):
        world.go_through(steps, then=answer, sleeps=30)
    assert world.freed == ["T--0"]  # one of four was free
    world.acquire("two", "T--0", "T--3")
    steps = take_back(world.ground(), wanted._replace(follows=False), Listener(world.freed.extend))
    assert world.go_through(steps, then=answer)[:2] == (("T--2", "T--0"), 0)


def test_one_that_goes_on_waits_for_its_store(world: World) -> None:
    ground = world.ground()
    is_away = True

    class Away:
        def pools(self, pool_type: str | None = None) -> object:
            if is_away:
                raise BackendUnreachable("etcd doesn't answer")
            return world.sides.pools.pools(pool_type)

    listener = Listener(world.freed.extend, warn=world.warnings.append)
    ground = ground._replace(pools=Away())  # type: ignore[arg-type]
    steps = take_back(ground, ALL._replace(follows=True), listener)
    for _ in range(3):
        asked = next(steps)
        assert asked.until is not None
        assert asked.until > world.time.clock.elapsed()
    assert world.warnings == ["etcd doesn't answer; waiting for it"]
    is_away = False
    world.time.advance(DELAY)
    next(steps)
    world.time.advance(DELAY)
    next(steps)
    assert len(world.marks()) == 2
    steps.close()


def leases_of(world: World) -> list[Lease]:
    """All that is held."""
    (pool,) = world.sides.pools.pools("T")
    return [each.lease for each in pool.resources if each.lease is not None]
