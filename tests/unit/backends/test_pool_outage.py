"""What a waiter does while the store doesn't answer, and when it gives up: in made-up time."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from leasectl.backends.contract import Patience, Progress, Turn, Withdrawn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import Outlook, PoolWaiter, TicketExpired
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    Interrupted,
    LeaseError,
    NoLease,
    NotAllowed,
    NotFound,
    Unanswered,
)
from leasectl.model import Claimant, Request
from leasectl.system.poll import Sleep
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore, MadeUpWaiter
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock

START = 1000.0  # of a manual clock
AWAY = BackendUnreachable("etcd doesn't answer")
WRONG = BackendUnreachable("its certificate isn't trusted")
WRONG.lasting = True


class Waiter(MadeUpWaiter):
    has_place = True

    def __init__(self, engine: Engine, store: MadeUpStore, claimant: Claimant) -> None:
        super().__init__(store, claimant)
        self._engine = engine
        self.error: BaseException | None = None  # what its looking ends with

    def enqueue(self, *, again: bool = False, beside: PoolWaiter | None = None) -> None:
        if self._engine.refusal is not None:
            raise self._engine.refusal
        super().enqueue(again=again, beside=beside)

    def claim(self) -> Outlook:
        error = self._engine.error or self.error
        if error is not None:
            raise error
        return super().claim()

    def dequeue(self, why: str = "") -> None:
        self._engine.asked.append("dequeue")
        super().dequeue(why)

    def close(self) -> None:
        self._engine.closed.append(self)
        super().close()


class Engine(MadeUpEngine):
    """A store that can be away.

    Attributes:
        refusal: What putting a ticket ends with.
        error: What looking ends with.
        first_look: What the next waiter's looking ends with.
        stops: So many of the next waiters are stopped for too long before they can look.
        waiters: Of all turns.
        asked: What it was asked to undo.
        closed: Those of the waiters that listen no longer.
    """

    def __init__(self, store: MadeUpStore) -> None:
        super().__init__(store)
        self.refusal: LeaseError | None = None
        self.error: BaseException | None = None
        self.first_look: BaseException | None = None
        self.stops = 0
        self.waiters: list[Waiter] = []
        self.asked: list[str] = []
        self.closed: list[Waiter] = []

    def waiter(self, claimant: Claimant, *, until: float | None) -> MadeUpWaiter:
        self.waiters.append(Waiter(self, self.made_up, claimant))
        self.waiters[-1].error, self.first_look = self.first_look, None
        if self.stops:
            self.stops -= 1
            self.waiters[-1].error = TicketExpired("nothing was heard")
            self.waiters[-1].has_place = False
        return self.waiters[-1]

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self.asked.append(f"withdraw {claim_key}")
        super().withdraw(claim_key, why)


class Journal(NoJournal):
    def __init__(self) -> None:
        self.said: list[str] = []

    def to_undo(self) -> None:
        self.said.append("to undo")

    def gave_up(self) -> None:
        self.said.append("gave up")


class Line:
    """A pool of one, somebody who holds it, and us behind.

    Attributes:
        warnings, reports: What we were told.
    """

    def __init__(self, time: ManualClock) -> None:
        self.time = time
        store = MadeUpStore(time.clock)
        self.pools, self.members = store.pools, store.members
        self.pools.create_pool("T", ["T--00"])
        self.engine = Engine(store)
        self.sides = store.sides
        self.backend = PoolBackend(
            "made-up:",
            self.engine,
            self.sides,
            clock=time.clock,
        )
        self.backend.acquire(
            Claimant("holder", "job/1/host/holder", Request("T")), NoJournal(), Patience()
        )
        self.journal = Journal()
        self.warnings: list[str] = []
        self.reports: list[Progress] = []
        self.engine.asked.clear()

    def wait(
        self,
        wait: float | None = None,
        *,
        connect_seconds: float | None = None,
        report_seconds: float | None = None,
        claim_key: str = "me",
    ) -> Turn:
        """Ask for what is held."""
        patience = Patience(wait, connect_seconds, warn=self.warnings.append)
        if report_seconds is not None:
            patience = patience._replace(report=self.reports.append, report_seconds=report_seconds)
        claimant = Claimant(claim_key, claim_key, Request("T"))
        return self.backend.turn(claimant, self.journal, patience)

    def queue(self) -> list[str]:
        (pool,) = self.pools.pools("T")
        return [entry.claim_key for entry in pool.queue]


@pytest.fixture
def line(manual_clock: ManualClock) -> Iterator[Line]:
    yield Line(manual_clock)


def look(steps: Turn, line: Line, at: float) -> Sleep:
    """Let it be that time, and have it look."""
    line.time.advance(at - line.time.clock.elapsed())
    return steps.send(set())


class TestAnOutage:
    def test_is_said_once_and_waited_out_with_a_look_each_second(self, line: Line) -> None:
        steps = line.wait()
        assert next(steps).until is None
        line.engine.error = AWAY
        for number in range(1, 4):
            wanted = look(steps, line, START + number)
            assert wanted.until == START + number + 1
        assert line.warnings == [
            "still waiting, most likely at the same queue position: etcd doesn't answer"
        ]
        line.engine.error = None
        assert look(steps, line, START + 4).until is None
        assert line.queue() == ["me"]
        line.backend.release("holder", ["T--00"])
        with pytest.raises(StopIteration):
            steps.send(set())
        assert [lease.name for lease in line.journal.leases or ()] == ["T--00"]
        assert line.journal.said == []

    def test_is_over_with_the_place_in_the_queue(self, line: Line) -> None:
        steps = line.wait()
        next(steps)
        line.engine.error = AWAY
        look(steps, line, START + 1)
        line.engine.waiters[-1].has_place = False
        with pytest.raises(BackendUnreachable, match="doesn't answer"):
            look(steps, line, START + 2)
        assert line.journal.said == ["to undo", "gave up"]
        assert line.engine.asked == []  # it was waited for long enough

    def test_a_ticket_that_has_expired_is_put_anew_at_the_end(self, line: Line) -> None:
        steps, other = line.wait(), line.wait(claim_key="other")
        next(steps)
        next(other)
        line.engine.waiters[-2].error = TicketExpired("nothing was heard")
        assert line.queue() == ["me", "other"]
        look(steps, line, START + 1)
        assert line.queue() == ["other", "me"]
        assert line.engine.asked == ["dequeue"]
        assert line.engine.closed[-1] is line.engine.waiters[-3]
        assert len(line.warnings) == 1
        assert line.journal.said == []
        steps.close()
        assert line.journal.said == ["gave up"]

    def test_one_that_has_expired_before_the_first_look_is_put_anew(self, line: Line) -> None:
        line.engine.first_look = TicketExpired("nothing was heard")
        steps = line.wait(5)
        assert next(steps).until == START + 5
        assert line.queue() == ["me"]
        assert line.engine.asked == ["dequeue"]
        assert len(line.warnings) == 1
        line.backend.release("holder", ["T--00"])
        with pytest.raises(StopIteration):
            steps.send(set())
        assert line.journal.leases is not None

    def test_there_it_is_no_answer_to_who_does_not_wait(self, line: Line) -> None:
        line.engine.first_look = TicketExpired("nothing was heard")
        with pytest.raises(TicketExpired):
            next(line.wait(0))
        assert line.journal.said == ["to undo", "gave up"]

    def test_one_that_expires_as_soon_as_it_was_put_ends_the_wait(self, line: Line) -> None:
        steps = line.wait()
        next(steps)
        line.engine.error = TicketExpired("nothing was heard")
        with pytest.raises(TicketExpired):
            look(steps, line, START + 1)
        assert line.journal.said == ["to undo", "gave up"]

    @pytest.mark.parametrize("waits_already", [False, True])
    def test_stopped_again_before_it_could_look_it_queues_once_more(
        self, line: Line, waits_already: bool
    ) -> None:
        steps = line.wait()
        if waits_already:
            next(steps)
            line.engine.waiters[-1].error = TicketExpired("nothing was heard")
        line.engine.stops = 2
        look(steps, line, START + 1) if waits_already else next(steps)
        assert line.queue() == ["me"]
        assert len(line.warnings) == (3 if waits_already else 2)
        assert line.journal.said == []
        steps.close()

    def test_deadline_in_an_outage_is_no_lease_and_says_what_was_known(self, line: Line) -> None:
        steps = line.wait(5, report_seconds=60)
        next(steps)
        line.engine.error = AWAY
        assert look(steps, line, START + 4.5).until == START + 5
        text = 'no lease of "T" within 5s: etcd doesn\'t answer; before that, 1 of 1 held'
        with pytest.raises(NoLease, match=text):
            look(steps, line, START + 5)
        assert line.journal.said == ["to undo", "gave up"]
        assert line.engine.asked == []

    def test_new_request_with_deadline_waits_for_the_store(self, line: Line) -> None:
        line.engine.refusal = AWAY
        steps = line.wait(1200)
        assert next(steps).until == START + 1
        for number in range(1, 100):
            look(steps, line, START + number)
        assert line.warnings == ["trying again: etcd doesn't answer"]
        assert line.journal.said == []
        line.engine.refusal = None
        assert look(steps, line, START + 100).until == START + 1200
        assert line.queue() == ["me"]
        steps.close()

    def test_store_that_never_answered_until_the_deadline_is_unreachable(self, line: Line) -> None:
        line.engine.refusal = AWAY
        steps = line.wait(5)
        next(steps)
        with pytest.raises(BackendUnreachable, match="doesn't answer"):
            look(steps, line, START + 5)

    @pytest.mark.parametrize("is_new", [True, False])
    @pytest.mark.parametrize("wait", [None, 1200])
    def test_connect_timeout_bounds_it(self, line: Line, is_new: bool, wait: float | None) -> None:
        steps = line.wait(wait, connect_seconds=30)
        if is_new:
            line.engine.refusal = AWAY
        next(steps)
        line.engine.error = line.engine.refusal = AWAY
        first = START if is_new else START + 100
        for number in range(1, 30):
            look(steps, line, first + number - (not is_new))
        with pytest.raises(BackendUnreachable, match="doesn't answer"):
            look(steps, line, first + 30)

    @pytest.mark.parametrize("error", [AccessRefused(NotAllowed("no")), WRONG])
    def test_new_request_that_is_refused_fails_at_once(self, line: Line, error: LeaseError) -> None:
        line.engine.refusal = error
        with pytest.raises(type(error), match=str(error)):
            next(line.wait(1200))

    def test_longer_than_the_place_is_waited_out_until_the_deadline(self, line: Line) -> None:
        steps, other = line.wait(1200), line.wait(claim_key="other")
        next(steps)
        next(other)
        line.engine.error = AWAY
        line.engine.waiters[-2].has_place = False
        look(steps, line, START + 1)
        line.engine.waiters[-2].error = TicketExpired("nothing was heard")
        line.engine.error, line.engine.refusal = None, AWAY
        look(steps, line, START + 2)
        line.engine.refusal = None
        look(steps, line, START + 3)
        assert line.queue() == ["other", "me"]
        steps.close()

    def test_that_begins_at_the_deadline_ends_the_wait_unsaid(self, line: Line) -> None:
        steps = line.wait(5)
        next(steps)
        line.engine.error = AWAY
        with pytest.raises(NoLease, match="within 5s: etcd doesn't answer"):
            look(steps, line, START + 5)
        assert line.warnings == []


class TestLeaving:
    """What is asked of the store, and left to others, when the wait ends without leases."""

    @pytest.mark.parametrize(
        ("reason", "asked", "said"),
        [
            (Interrupted(signal.SIGTERM), ["dequeue"], ["gave up"]),
            (NotAllowed("no"), ["dequeue"], ["gave up"]),
            (AccessRefused(NotAllowed("no")), ["dequeue"], ["gave up"]),
            (Unanswered(signal.SIGTERM), [], ["to undo", "gave up"]),
            (BackendUnreachable("away"), [], ["to undo", "gave up"]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_store_that_is_away_is_not_asked(
        self, line: Line, reason: BaseException, asked: list[str], said: list[str]
    ) -> None:
        steps = line.wait()
        next(steps)
        with pytest.raises(type(reason)):
            steps.throw(reason)
        assert (line.engine.asked, line.journal.said) == (asked, said)

    def test_of_one_that_was_asked_for_nothing_there_is_nothing_to_undo(self, line: Line) -> None:
        steps = line.wait()
        next(steps)
        unasked = BackendUnreachable("away")
        unasked.asked = False
        with pytest.raises(BackendUnreachable):
            steps.throw(unasked)
        assert (line.engine.asked, line.journal.said) == ([], ["gave up"])

    def test_who_loses_the_pool_is_told_so_and_who_is_withdrawn_that(self, line: Line) -> None:
        steps, other = line.wait(), line.wait(claim_key="other")
        next(steps)
        next(other)
        line.backend.withdraw("other", "by hand")
        with pytest.raises(Withdrawn, match="T: the request was released while it waited"):
            other.send(set())
        line.pools.delete_pool("T", force=True)
        with pytest.raises(NotFound, match='no pool "T"'):
            steps.send(set())

    def test_a_ticket_that_cant_be_taken_away_is_left_to_the_keeper(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(why: str) -> None:
            raise AWAY

        steps = line.wait()
        next(steps)
        monkeypatch.setattr(line.engine.waiters[-1], "dequeue", away)
        with pytest.raises(Interrupted):
            steps.throw(Interrupted(signal.SIGTERM))
        assert line.journal.said == ["to undo", "gave up"]

    def test_one_of_which_nothing_was_heard_is_taken_away_as_well(self, line: Line) -> None:
        line.engine.refusal = NotAllowed("no")
        with pytest.raises(NotAllowed):
            next(line.wait())
        assert line.engine.asked == ["dequeue"]
        assert line.journal.said == ["gave up"]


class TestADeadline:
    @pytest.mark.parametrize(
        ("wait", "text"),
        [
            (0, 'no lease of "T": 1 of 1'),
            (0.9, 'no lease of "T": 1 of 1'),
            (1, 'no lease of "T" within 1s: 1 of 1'),
            (90, 'no lease of "T" within 1m30s: 1 of 1'),
        ],
    )
    def test_says_how_long_it_was_if_that_was_long(
        self, line: Line, wait: float, text: str
    ) -> None:
        steps = line.wait(wait)
        with pytest.raises(NoLease) as refused:
            if wait:
                assert next(steps).until == START + wait
                look(steps, line, START + wait)
            else:
                next(steps)
        assert str(refused.value).startswith(text)
        assert line.queue() == []


class TestReports:
    def test_come_at_the_start_and_then_as_often_as_wanted(self, line: Line) -> None:
        steps = line.wait(report_seconds=10)
        assert next(steps).until == START + 10
        look(steps, line, START + 9.9)
        assert [each.waited_seconds for each in line.reports] == [0.0]
        assert look(steps, line, START + 10).until == START + 20
        first, second = line.reports
        assert second.waited_seconds == 10.0
        assert (first.position, first.held, first.capacity) == (1, 1, 1)
        assert second.longest_held_seconds == pytest.approx(10.0)
        steps.close()

    def test_nobody_has_held_for_less_than_no_time(self, line: Line) -> None:
        line.time.put_back(3600)
        steps = line.wait(report_seconds=10)
        next(steps)
        (report,) = line.reports
        assert (report.longest_holder, report.longest_held_seconds) == ("job/1/host/holder", 0.0)
        steps.close()

    def test_there_is_none_in_an_outage(self, line: Line) -> None:
        steps = line.wait(report_seconds=10)
        next(steps)
        line.engine.error = AWAY
        look(steps, line, START + 5)
        look(steps, line, START + 10)
        assert len(line.reports) == 1
        steps.close()


def test_a_release_of_nothing_named_takes_a_request_out_of_the_queue_of_a_server(
    line: Line,
) -> None:
    steps = line.wait()
    next(steps)
    assert line.queue() == ["me"]
    backend = MadeUpBackend("madeup://", line.engine, line.sides, clock=line.time.clock)
    assert backend.release("me", ()) == ()
    assert line.queue() == []
    line.backend.release("me", ())  # on the embedded pool the record says whether it waits
    steps.close()


def test_a_withdrawal_ends_the_wait(line: Line) -> None:
    steps = line.wait()
    next(steps)
    line.backend.withdraw("me")
    assert line.queue() == []
    with pytest.raises(Withdrawn, match="released while it waited"):
        steps.send(set())


def test_nobody_listens_after_the_end(line: Line) -> None:
    with pytest.raises(NoLease):
        next(line.wait(0))
    steps = line.wait()
    next(steps)
    assert len(line.engine.closed) == 2  # the holder's, and that of the first who waited
    steps.close()
    assert line.engine.closed == line.engine.waiters
