"""Pools in memory with holders that answer a reclaim, in a time that moves by hand."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import Callable, TypeVar

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.notes import Note, NoteChange
from leasectl.engines.rules.membership import cordon
from leasectl.leases.marks import Answered, encode_mark, parse_mark
from leasectl.model import Claimant, ReleasedBy, Request
from leasectl.reclaim.plan import Wanted
from leasectl.reclaim.taking_back import Ground, Listener, Outcome, take_back
from leasectl.state.uses import LastUse
from leasectl.system.poll import Sleep, is_readable
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock

Result = TypeVar("Result")
DELAY, WAIT = 180.0, 60.0
ALL = Wanted(names=frozenset({"T--0", "T--1"}), delay_seconds=DELAY, wait_seconds=WAIT)


class World:
    """A pool in memory, whose holders do at each of an operator's sleeps what a test says."""

    def __init__(self) -> None:
        self.time = ManualClock()
        store = MadeUpStore(self.time.clock)
        self.engine, self.sides = MadeUpEngine(store), store.sides
        self.backend = PoolBackend("made-up:", self.engine, self.sides, clock=self.time.clock)
        self.sides.pools.create_pool("T", [f"T--{number}" for number in range(4)])
        self.uses: dict[tuple[str, str], LastUse] = {}
        self.freed: list[str] = []
        self.warnings: list[str] = []
        self.changes = 0
        self.writes_between = 0  # so many times a holder writes just before something is freed
        self.began_at = self.time.clock.elapsed()

    @property
    def passed(self) -> float:
        return self.time.clock.elapsed() - self.began_at

    def acquire(self, holder: str, *names: str) -> None:
        for name in names:
            claimant = Claimant(holder, f"job/1/host/{holder}", Request("T", name=name))
            self.backend.acquire(claimant, NoJournal(), Patience(wait_seconds=0))

    def ground(self) -> Ground:
        world, notes = self, self.sides.notes

        class Counting:
            """The notes, with a count of the requests that change them."""

            of_pool, of_claims, watch = notes.of_pool, notes.of_claims, notes.watch

            def free(self, wanted: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
                if world.writes_between:
                    world.writes_between -= 1
                    return ()
                return notes.free(wanted, by=by)

            def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
                world.changes += 1
                return notes.change(changes)

        def atomic() -> AbstractContextManager[object]:
            return self.engine.atomic()

        return Ground(
            "T", self.sides.pools, Counting(), atomic, lambda: self.uses, self.time.clock, "me"
        )

    def cordon(self, name: str) -> None:
        self.sides.members.update([name], lambda member, _: cordon(member, is_cordoned=True))

    def marks(self) -> dict[str, Note]:
        return {note.name: note for note in self.sides.notes.of_pool("T")}

    def answer(self, name: str, state: Answered) -> None:
        note = self.marks()[name]
        mark = parse_mark(note.text)
        assert mark is not None
        after = encode_mark(mark.answered(state))
        assert self.sides.notes.change([NoteChange(*note[:3], note.text, after)]) == (True,)

    def run(
        self, wanted: Wanted, *, then: Callable[[], object] = lambda: None, sleeps: int = 100
    ) -> Outcome:
        """Have an operator run to its end; `then` happens at the begin of each of its sleeps."""
        listener = Listener(self.freed.extend, warn=self.warnings.append)
        steps = take_back(self.ground(), wanted, listener)
        return self.go_through(steps, then=then, sleeps=sleeps)

    def go_through(
        self,
        steps: Generator[Sleep, set[int], Result],
        *,
        then: Callable[[], object],
        sleeps: int = 100,
    ) -> Result:
        """Do the steps to their end, as `run`."""
        try:
            asked = next(steps)
            for _ in range(sleeps):
                then()
                woken = {fd for fd in asked.fds if is_readable(fd, 0)}
                if not woken:
                    assert asked.until is not None, "nobody would ever wake it"
                    self.time.advance(max(0.0, asked.until - self.time.clock.elapsed()))
                asked = steps.send(woken)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            steps.close()
        raise AssertionError("it goes on and on")
