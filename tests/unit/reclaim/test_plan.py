"""What a reclaim does next, given what it wants, sees and remembers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from leasectl.leases.marks import Answered, encode_mark, new_mark
from leasectl.reclaim.plan import (
    Asked,
    Held,
    LeaseId,
    Memory,
    Step,
    Wanted,
    begin,
    last_step,
    next_step,
)

DELAY, WAIT = 180.0, 60.0
EXCESS = Wanted(excess=2, delay_seconds=DELAY, wait_seconds=WAIT)
NAMED = Wanted(names=frozenset({"a", "b"}), delay_seconds=DELAY, wait_seconds=WAIT)

pytestmark = pytest.mark.once


def lease(
    name: str,
    fence: int = 1,
    group: str = "h",
    *,
    in_use: bool = False,
    used_at: float | None = None,
) -> Held:
    return Held(name, fence, group, is_in_use=in_use, used_at=used_at)


def noted(each: Held, answer: Answered | None = None) -> Held:
    mark = each.mark or new_mark("an operator", seconds=DELAY + WAIT, now=0.0)
    return each._replace(note=encode_mark(mark if answer is None else mark.answered(answer)))


class Looks:
    """A reclaim that looks again and again; marks are put as it wants, by the test."""

    def __init__(self, wanted: Wanted, held: Sequence[Held]) -> None:
        self.wanted = wanted
        self.memory = begin(wanted, held, 0.0)

    def look(self, held: Sequence[Held], now: float) -> Step:
        step = next_step(self.wanted, held, self.memory, now)
        self.memory = step.memory.having_marked({}, {each.id for each in step.take_off}, now)
        return step

    def put(self, *marked: Held, now: float) -> None:
        marks = {each.id: each.mark for each in marked}
        self.memory = self.memory.having_marked({k: m for k, m in marks.items() if m}, (), now)


def names(leases: Sequence[Held]) -> str:
    return "".join(each.name for each in leases)


class TestDelay:
    def test_what_is_in_excess_is_asked_for_after_the_delay_and_no_sooner(self) -> None:
        held = [lease("a"), lease("b", 2)]
        looks = Looks(NAMED, held)
        step = looks.look(held, 0.0)
        assert (step.ask, step.look_at, step.is_over) == ((), DELAY, False)
        assert names(looks.look(held, DELAY - 0.1).ask) == ""
        assert names(looks.look(held, DELAY).ask) == "ab"

    def test_held_for_longer_counts_from_when_it_is_so(self) -> None:
        wanted = Wanted(
            longer_than_seconds=3600.0, delay_seconds=DELAY, wait_seconds=WAIT, follows=True
        )
        looks = Looks(wanted, [])
        step = looks.look([lease("a")._replace(held_seconds=3590.0)], 0.0)
        assert step.look_at == 10.0
        longer = [lease("a")._replace(held_seconds=3700.0)]
        assert looks.look(longer, 110.0).look_at == 110.0 + DELAY
        assert names(looks.look(longer, 110.0 + DELAY).ask) == "a"


class TestLimits:
    def test_unused_names_are_left_to_each_holder(self) -> None:
        held = [lease("a", 1, "one"), lease("b", 2, "one"), lease("c", 3, "one"), lease("d", 4)]
        looks = Looks(EXCESS._replace(excess=9, leave_unused=1), held)
        looks.look(held, 0.0)
        assert names(looks.look(held, DELAY).ask) == "ab"

    def test_no_more_are_asked_for_than_are_to_be_free(self) -> None:
        wanted = EXCESS._replace(until_free=3)
        held = [lease(name, at) for at, name in enumerate("abc")]
        first = next_step(wanted, held, Memory(0.0), 0.0, free=2)
        step = next_step(wanted, held, first.memory, DELAY, free=2)
        assert (names(step.ask), step.missing) == ("a", 1)
        assert next_step(wanted, held, first.memory, DELAY, free=3).is_over


class TestAnswers:
    def asked(self, wanted: Wanted = NAMED) -> tuple[Looks, list[Held]]:
        held = [lease("a"), lease("b", 2)]
        looks = Looks(wanted, held)
        looks.look(held, 0.0)
        marked = [noted(each) for each in looks.look(held, DELAY).ask]
        looks.put(*marked, now=DELAY)
        return looks, marked

    def test_who_keeps_is_not_asked_again_within_a_delay(self) -> None:
        looks, (a, b) = self.asked(NAMED._replace(follows=True))
        said_at = DELAY + 1
        assert names(looks.look([noted(a, "keep"), b], said_at).take_off) == "a"
        held = [lease("a"), b]
        assert looks.look(held, said_at + DELAY - 0.1).ask == ()
        assert names(looks.look(held, said_at + DELAY).ask) == "a"

    def test_a_mark_that_somebody_took_off_is_not_put_again_within_a_delay(self) -> None:
        looks, _ = self.asked(NAMED._replace(follows=True))
        held = [lease("a"), lease("b", 2)]
        assert looks.look(held, DELAY + 1).ask == ()
        assert looks.look(held, 2 * DELAY).ask == ()
        assert names(looks.look(held, 2 * DELAY + 1).ask) == "ab"

    def test_a_mark_that_was_answered_as_it_was_taken_off_is_its_own_still(self) -> None:
        looks, (a, b) = self.asked(NAMED._replace(follows=True))
        step = next_step(looks.wanted, [a, b], looks.memory, DELAY + WAIT)
        assert names(step.take_off) == "ab"
        looks.memory = step.memory.having_marked({}, {b.id}, DELAY + WAIT)
        step = looks.look([noted(a, "ready"), lease("b", 2)], DELAY + WAIT + 1)
        assert names(step.free) == "a"
        assert step.memory.asked.keys() == {a.id}


class TestAdoption:
    def test_a_mark_that_is_there_is_adopted_with_its_answer(self) -> None:
        a, b = noted(lease("a"), "ready"), noted(lease("b", 2))
        a = a._replace(marked_seconds=DELAY)
        step = next_step(EXCESS, [a, b, lease("c", 3)], Memory(50.0), 50.0)
        assert (names(step.free), step.ask, step.take_off) == ("a", (), ())
        assert step.memory.asked[b.id] == Asked(b.mark.id if b.mark else "", 50.0, 50.0 + DELAY)
        assert step.look_at == 50.0 + WAIT

    def test_its_delay_counts_from_the_time_that_the_mark_records(self) -> None:
        ready = noted(lease("a"), "ready")._replace(marked_seconds=DELAY - 20.0)
        looks = Looks(NAMED, [ready])
        step = looks.look([ready], 0.0)
        assert (step.free, step.look_at, step.is_over) == ((), 20.0, False)
        assert names(looks.look([ready._replace(marked_seconds=DELAY)], 20.0).free) == "a"

    def test_no_more_are_adopted_than_are_missing_and_the_others_stay(self) -> None:
        marked = [noted(lease(name, at)) for at, name in enumerate("abc")]
        ready = noted(lease("d", 9), "ready")._replace(marked_seconds=DELAY)
        step = next_step(EXCESS, [*marked, ready], Memory(0.0), 0.0)
        assert (names(step.free), step.take_off) == ("d", ())
        assert step.memory.asked.keys() == {ready.id, marked[0].id}

    @pytest.mark.parametrize("own", [0, 1, 2])
    def test_of_others_only_what_is_missing_beside_its_own_is_adopted(self, own: int) -> None:
        held = [lease(name, at) for at, name in enumerate("abcd")]
        looks = Looks(EXCESS, held)
        looks.look(held, 0.0)
        marked = [noted(each) for each in held]
        looks.put(*marked[:own], now=DELAY)
        step = looks.look(marked, DELAY)
        assert step.take_off == ()
        assert len(step.memory.asked) == 2
        assert {each.id for each in marked[:own]} <= step.memory.asked.keys()


class Pool:
    """Leases, holders that use, answer, give back and come, and operators that see it late."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.fences = 0
        self.leases: dict[str, Held] = {}
        self.in_use: set[LeaseId] = set()
        self.marked_at: dict[str, float] = {}
        for name in "abcdefgh":
            self.acquire(name)

    def acquire(self, name: str) -> None:
        self.fences += 1
        group = self.random.choice(["one", "two", "three"])
        self.leases[name] = Held(name, self.fences, group)

    def seen(self) -> list[Held]:
        return [each._replace(is_in_use=each.id in self.in_use) for each in self.leases.values()]

    def happen(self) -> None:
        name = self.random.choice("abcdefgh")
        each = self.leases.get(name)
        if each is None:
            self.acquire(name)
            return
        mark, chance = each.mark, self.random.random()
        if chance < 0.1:
            del self.leases[name]
        elif chance < 0.5 and (mark is None or mark.state != "ready"):
            (self.in_use.discard if each.id in self.in_use else self.in_use.add)(each.id)
        elif mark is not None and chance < 0.9:
            ready = each.id not in self.in_use and self.random.random() < 0.7
            self.leases[name] = noted(each, "ready" if ready else "keep")

    def change(self, before: Held, note: str | None) -> bool:
        each = self.leases.get(before.name)
        if each is None or (each.id, each.note) != (before.id, before.note):
            return False
        self.leases[before.name] = each._replace(note=note)
        return True


class Operator:
    """A reclaim over such a pool, that may be killed; what it does is judged on the way."""

    def __init__(self, pool: Pool, wanted: Wanted) -> None:
        self.pool = pool
        self.wanted = wanted
        self.began_at = pool.now
        self.memory = begin(wanted, pool.seen(), pool.now)
        self.refused: dict[LeaseId, float] = {}  # when each was last known not to be had
        self.freed: list[LeaseId] = []
        self.is_over = False

    def look(self, held: Sequence[Held]) -> None:
        now = self.pool.now
        step = next_step(self.wanted, held, self.memory, now)
        for each in held:
            if each.is_in_use:
                self.refused[each.id] = now
        self.memory = step.memory
        for each in step.free:
            assert each.mark is not None
            assert each.mark.state == "ready"
            if self.pool.change(each, None):
                assert each.id not in self.pool.in_use
                del self.pool.leases[each.name]
                self.freed.append(each.id)
        taken_off: set[LeaseId] = set()
        for each in step.take_off:
            assert each.mark is not None
            if self.pool.change(each, None):
                taken_off.add(each.id)
            self.refused[each.id] = now
        marks = {}
        for each in step.ask:
            assert each.mark is None
            assert not each.is_in_use
            since = max(self.began_at, self.refused.get(each.id, 0.0))
            assert now - since >= self.wanted.delay_seconds
            mark = new_mark("x", seconds=self.wanted.mark_seconds, now=now)
            if self.pool.change(each, encode_mark(mark)):
                marks[each.id] = mark
        self.memory = self.memory.having_marked(marks, taken_off, now)
        if self.wanted.excess is not None:
            not_taken_off = len(step.take_off) - len(taken_off)
            assert len(self.memory.asked) - not_taken_off <= step.missing <= self.wanted.excess
            assert self.wanted.follows or len(self.freed) <= self.wanted.excess
        is_busy = step.free or step.take_off or step.ask
        assert step.is_over or is_busy or (step.look_at or 0.0) > now
        self.is_over = step.is_over

    def end(self) -> None:
        for each in last_step(self.pool.seen(), self.memory):
            assert self.pool.change(each, None)


WANTED = [
    Wanted(excess=3, delay_seconds=8.0, wait_seconds=5.0),
    Wanted(excess=2, delay_seconds=8.0, wait_seconds=20.0, follows=True),
    Wanted(names=frozenset("abc"), delay_seconds=8.0, wait_seconds=10.0),
    Wanted(names=frozenset("abc"), delay_seconds=0.0, wait_seconds=10.0, follows=True),
    Wanted(excess=5, delay_seconds=0.0, wait_seconds=30.0),
]


@pytest.mark.parametrize("wanted", WANTED)
def test_whatever_happens_and_however_late_it_is_seen_the_rules_are_kept(wanted: Wanted) -> None:
    taken = 0
    for seed in range(15):
        pool = Pool(seed)
        operators = [Operator(pool, wanted) for _ in range(2)]
        views = [pool.seen()]
        for _ in range(150):
            pool.now += pool.random.random()
            pool.happen()
            views = [*views[-2:], pool.seen()]
            for at, operator in enumerate(operators):
                chance = pool.random.random()
                if chance < 0.02 or operator.is_over:  # killed, or it ends
                    if operator.is_over:
                        operator.end()
                    taken += len(operator.freed)
                    operators[at] = Operator(pool, wanted)
                elif chance < 0.5:
                    operator.look(views[-1] if chance < 0.3 else pool.random.choice(views))
    assert taken > 10
