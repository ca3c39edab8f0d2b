"""leasectl.backends.pool.either: on a store whose steps may fail one by one, in made-up time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from leasectl.backends.contract import Patience, Progress, Turn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.pool.either import EitherWaiter
from leasectl.engines.contract import Outlook, PoolWaiter, TicketExpired
from leasectl.errors import BackendUnreachable, Interrupted, NoLease, NotFound
from leasectl.model import Claimant, Lease, Process, Request
from tests.kit.forking import child as child
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore, MadeUpWaiter
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock

EITHER = Request("A", other_types=("B",))


class Waiter(MadeUpWaiter):
    """A waiter of one type, which fails when its engine is to."""

    has_place = True
    _unheard: Outlook | None = None

    def __init__(self, engine: Engine, store: MadeUpStore, claimant: Claimant) -> None:
        super().__init__(store, claimant)
        self._engine = engine
        self._type = claimant.request.type

    def _ask(self, step: str) -> None:
        self._engine.asked.append(f"{step} {self._type}")
        if f"{step} {self._type}" in self._engine.failing:
            raise BackendUnreachable("the store doesn't answer")
        if self._type in self._engine.expired:
            self._engine.expired.remove(self._type)
            raise TicketExpired("the store had heard nothing of us")

    def check(self) -> None:
        try:
            self._ask("check")
        except BackendUnreachable as error:
            error.asked = False
            raise
        super().check()

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        if not again:
            self.check()
        super().enqueue(again=again, beside=beside)

    def claim(self) -> Outlook:
        """Claim, and lose the answer; the next call finds what it got."""
        if self._type in self._engine.vanished:
            raise NotFound(f"no pool of {self._type}")
        outlook = self._unheard or super().claim()
        self._unheard = outlook if outlook.leases else None
        self._ask("claim")
        return outlook

    def dequeue(self, why: str = "") -> None:
        self._ask("dequeue")
        super().dequeue(why)

    def close(self) -> None:
        self._engine.closed.append(self._type)
        super().close()


class Engine(MadeUpEngine):
    """A store that can fail.

    Attributes:
        failing: The steps that fail, like ``dequeue B``.
        expired: The types in whose queues a ticket has gone, as the next step there finds.
        vanished: The types whose pool a claim finds gone, while a ticket is left.
        asked: The steps that were taken.
        closed: The types whose waiter isn't needed any more, each as often.
        waiters: All there were, by type.
        is_locked: Whether a step is being taken at once with others.
    """

    def __init__(self, store: MadeUpStore) -> None:
        super().__init__(store)
        self.failing: set[str] = set()
        self.expired: set[str] = set()
        self.vanished: set[str] = set()
        self.asked: list[str] = []
        self.closed: list[str] = []
        self.waiters: dict[str, Waiter] = {}
        self.is_locked = False

    def waiter(self, claimant: Claimant, *, until: float | None) -> MadeUpWaiter:
        made = Waiter(self, self.made_up, claimant)
        self.waiters[claimant.request.type] = made
        return made

    def atomic(self) -> AbstractContextManager[object]:
        return self._locked()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.is_locked = True
        try:
            yield
        finally:
            self.is_locked = False


class Journal(NoJournal):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.pool_type: str | None = None

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        super().granted(leases)
        self.pool_type = pool_type

    def to_undo(self) -> None:
        self.said.append("to undo")

    def gave_up(self) -> None:
        self.said.append("gave up")


class Scene:
    """Pools A and B of one each, both held, and us, who would take either."""

    def __init__(self, time: ManualClock) -> None:
        self.time = time
        store = MadeUpStore(time.clock)
        self.pools, self.members = store.pools, store.members
        self.engine = Engine(store)
        self.backend = PoolBackend(
            "made-up:",
            self.engine,
            store.sides,
            clock=time.clock,
        )
        self.journal = Journal()
        self.warnings: list[str] = []
        self.reports: list[Progress] = []
        for pool_type in "AB":
            self.pools.create_pool(pool_type, [f"{pool_type}--00"])
            who = f"holder of {pool_type}"
            self.backend.acquire(Claimant(who, who, Request(pool_type)), NoJournal(), Patience())
        self.engine.asked.clear()
        self.engine.closed.clear()

    def turn(self, wait: float | None = None) -> Turn:
        patience = Patience(wait, warn=self._warn, report=self.reports.append)
        return self.backend.turn(Claimant("me", "me", EITHER), self.journal, patience)

    def waiter(self) -> EitherWaiter:
        claimant = Claimant("me", "me", EITHER)
        return EitherWaiter(self.engine, claimant, until=None, warn=self._warn)

    def _warn(self, text: str) -> None:
        assert not self.engine.is_locked
        self.warnings.append(text)

    def free(self, pool_type: str) -> None:
        self.backend.release(f"holder of {pool_type}", [f"{pool_type}--00"])

    def held(self) -> list[str]:
        """What is held by us."""
        return [
            each.name
            for pool in self.pools.pools()
            for each in pool.resources
            if each.claim_key == "me"
        ]

    def waiting(self) -> list[str]:
        """The types whose queues have a ticket of ours."""
        return [pool.type for pool in self.pools.pools() if pool.queue]


@pytest.fixture
def scene(manual_clock: ManualClock) -> Scene:
    return Scene(manual_clock)


def finish(steps: Turn) -> None:
    with pytest.raises(StopIteration):
        steps.send(set())


class TestTheGrant:
    def test_nobody_is_told_of_it_before_the_other_ticket_is_gone(self, scene: Scene) -> None:
        steps = scene.turn()
        next(steps)
        scene.engine.failing = {"dequeue B"}
        scene.free("A")
        for _ in range(3):
            assert steps.send(set()).until == scene.time.clock.elapsed() + 1
            scene.time.advance(1)
        assert (scene.held(), scene.waiting(), scene.journal.leases) == (["A--00"], ["B"], None)
        scene.free("B")  # which it doesn't take as well
        scene.engine.failing = set()
        finish(steps)
        assert (scene.held(), scene.waiting()) == (["A--00"], [])
        assert [lease.name for lease in scene.journal.leases or ()] == ["A--00"]
        assert (scene.journal.pool_type, scene.journal.said) == ("A", [])

    def test_of_one_whose_time_is_over_before_that_nobody_is_told(self, scene: Scene) -> None:
        waiter = scene.waiter()
        waiter.enqueue()
        scene.engine.failing = {"dequeue B"}
        scene.free("A")
        with pytest.raises(BackendUnreachable):
            waiter.claim()
        assert scene.held() == ["A--00"]
        scene.engine.failing = set()
        scene.engine.waiters["A"].has_place = False
        with pytest.raises(TicketExpired, match="a lease of A expired"):
            waiter.claim()
        assert not waiter.has_place
        waiter.dequeue()
        assert (scene.held(), scene.waiting()) == ([], [])

    def test_what_may_have_been_claimed_comes_before_all_else(self, scene: Scene) -> None:
        steps = scene.turn()
        next(steps)
        scene.engine.failing = {"claim B"}
        scene.free("B")
        steps.send(set())
        assert scene.held() == ["B--00"]  # and we weren't told
        scene.free("A")
        scene.engine.failing = set()
        finish(steps)
        assert (scene.held(), scene.waiting(), scene.journal.pool_type) == (["B--00"], [], "B")

    def test_a_signal_before_the_other_ticket_is_gone_gives_all_back(self, scene: Scene) -> None:
        steps = scene.turn()
        next(steps)
        scene.engine.failing = {"dequeue B"}
        scene.free("A")
        steps.send(set())
        scene.engine.failing = set()
        with pytest.raises(Interrupted):
            steps.throw(Interrupted(signal.SIGTERM))
        assert (scene.held(), scene.waiting(), scene.journal.said) == ([], [], ["gave up"])


class TestTheStart:
    def test_waits_for_those_alone_that_could_meet_it(self, scene: Scene) -> None:
        remove_resources(scene.members, "A", ["A--00"], force=True)
        waiter = scene.waiter()
        waiter.check()
        waiter.enqueue()
        assert scene.waiting() == ["B"]
        assert "dequeue A" not in scene.engine.asked  # there never was a ticket

    def test_of_one_that_got_only_a_ticket_of_the_first_there_is_something_to_undo(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def put_one(*, again: bool = False) -> None:
            scene.engine.failing = {"check B"}
            MadeUpWaiter.enqueue(scene.engine.waiters["A"])

        steps = scene.turn()
        waiter = scene.engine.waiter
        with monkeypatch.context() as patch:

            def made(claimant: Claimant, *, until: float | None) -> MadeUpWaiter:
                found = waiter(claimant, until=until)
                if claimant.request.type == "A":
                    patch.setattr(found, "enqueue", put_one)
                return found

            patch.setattr(scene.engine, "waiter", made)
            with pytest.raises(BackendUnreachable):
                next(steps)
        assert scene.waiting() == ["A"]
        assert scene.journal.said == ["to undo", "gave up"]


class TestTheEnd:
    def test_a_ticket_that_can_not_be_taken_away_keeps_no_other_in_its_queue(
        self, scene: Scene
    ) -> None:
        steps = scene.turn()
        next(steps)
        scene.engine.failing = {"dequeue A"}
        with pytest.raises(Interrupted):
            steps.throw(Interrupted(signal.SIGTERM))
        assert scene.waiting() == ["A"]
        assert scene.journal.said == ["to undo", "gave up"]

    def test_the_deadline_names_all_types_and_counts_all_pools(self, scene: Scene) -> None:
        other = scene.backend.turn(Claimant("x", "x", Request("B")), NoJournal(), Patience())
        next(other)
        steps = scene.turn(wait=60)
        next(steps)
        (report,) = scene.reports
        assert (report.position, report.held, report.capacity) == (1, 2, 2)
        scene.time.advance(60)
        with pytest.raises(NoLease) as refused:
            steps.send(set())
        assert str(refused.value) == (
            'no lease of "A" or "B" within 1m: 2 of 2 held, 1 other request waiting; '
            "see the holders with: leasectl status"
        )
        other.close()

    def test_a_pool_that_is_deleted_is_told_of_and_waited_for_no_longer(self, scene: Scene) -> None:
        steps = scene.turn()
        next(steps)
        scene.pools.delete_pool("B", force=True)
        steps.send(set())
        steps.send(set())
        assert scene.warnings == [
            'no longer waiting for B: no pool "B"; list them with: leasectl pool list'
        ]
        scene.free("A")
        finish(steps)
        assert scene.journal.pool_type == "A"

    def test_who_did_not_run_for_long_queues_again_where_there_still_is_a_pool(
        self, scene: Scene
    ) -> None:
        steps = scene.turn()
        next(steps)
        scene.pools.delete_pool("B", force=True)
        scene.engine.expired = {"A"}
        steps.send(set())
        assert scene.waiting() == ["A"]
        assert any("the queue position was not renewed in time" in each for each in scene.warnings)
        scene.free("A")
        finish(steps)
        assert scene.journal.pool_type == "A"

    def test_who_did_not_run_for_long_waits_on_also_for_what_can_not_be_met_as_things_are(
        self, scene: Scene
    ) -> None:
        steps = scene.turn()
        next(steps)
        remove_resources(scene.members, "B", ["B--00"], force=True)
        scene.engine.expired = {"A"}
        steps.send(set())
        assert scene.waiting() == ["A", "B"]
        add_resources(scene.members, "B", ["B--01"])
        finish(steps)
        assert scene.journal.pool_type == "B"

    def test_it_hears_of_the_end_of_whom_it_watches(self, scene: Scene, child: Process) -> None:
        waiter = scene.waiter()
        waiter.enqueue()
        assert waiter.claim().leases is None
        dead = child._replace(start_time=child.start_time + 1)
        assert waiter.listen([dead])[1]
        alone, ended = waiter.listen([])
        assert not ended
        both, ended = waiter.listen([child])
        assert (len(both - alone), ended) == (1, False)
        assert waiter.heard(alone) is False
        assert waiter.heard(both - alone) is True
        waiter.dequeue()
