"""leasectl.backends.pool.turn: who sees to those before it, what it asks for, and what it tells."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from leasectl.backends.contract import Patience, Turn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import cordon
from leasectl.errors import BackendUnreachable, NoLease
from leasectl.model import Claimant, Process, Request
from leasectl.system.process import identify, this_process
from tests.kit.forking import ending, fork
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock
from tests.unit.backends.test_pool_outage import AWAY, START, Line, look


@pytest.fixture
def line(manual_clock: ManualClock) -> Line:
    """A pool of one that somebody holds."""
    return Line(manual_clock)


class TestAWitness:
    """Looked for by who waits behind somebody, a second after it came."""

    @pytest.fixture
    def ahead(self, line: Line) -> Iterator[Turn]:
        steps = line.wait(claim_key="ahead")
        next(steps)
        yield steps
        steps.close()

    def behind(self, line: Line, *witnesses: Process | None) -> tuple[Turn, list[float]]:
        """Somebody behind that one, and when he has looked for a witness."""
        found, looked = list(witnesses), list[float]()

        def see_to_witness() -> Process | None:
            looked.append(line.time.clock.elapsed() - START)
            return found.pop(0)

        patience = Patience(see_to_witness=see_to_witness)
        return line.backend.turn(Claimant("me", "me", Request("T")), NoJournal(), patience), looked

    def test_is_looked_for_when_it_has_waited_for_a_while(self, line: Line, ahead: Turn) -> None:
        steps, looked = self.behind(line, this_process())
        assert next(steps).until == START + 1.0
        look(steps, line, START + 0.9)
        assert looked == []
        assert look(steps, line, START + 1.0).until is None
        assert look(steps, line, START + 9.0).until is None
        assert looked == [1.0]
        steps.close()

    def test_that_is_not_there_is_looked_for_again(self, line: Line, ahead: Turn) -> None:
        steps, looked = self.behind(line, None, None, this_process())
        next(steps)
        assert look(steps, line, START + 1.5).until == START + 2.5
        look(steps, line, START + 2.4)
        assert look(steps, line, START + 2.5).until == START + 3.5
        assert look(steps, line, START + 3.5).until is None
        assert looked == [1.5, 2.5, 3.5]
        steps.close()

    def test_that_has_ended_is_replaced_by_one_after_the_other(
        self, line: Line, ahead: Turn
    ) -> None:
        pid = fork(signal.pause)
        line.time.advance(0.25)
        steps, looked = self.behind(line, identify(pid), this_process())
        next(steps)
        wanted = look(steps, line, START + 1.25)
        (pidfd,) = [fd for fd in wanted.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]
        os.kill(pid, signal.SIGKILL)
        ending(pid)
        line.time.advance(4.25)
        # Each a whole number of seconds after it came, which is another instant for each.
        assert steps.send({pidfd}).until == START + 6.25
        assert looked == [1.25]
        assert look(steps, line, START + 6.25).until is None
        assert looked == [1.25, 6.25]
        steps.close()

    def test_is_none_of_the_first_ones_business(self, line: Line) -> None:
        steps, looked = self.behind(line)
        assert next(steps).until is None
        look(steps, line, START + 60.0)
        assert looked == []
        steps.close()

    def test_is_looked_for_no_more_by_who_has_become_the_first(
        self, line: Line, ahead: Turn
    ) -> None:
        steps, looked = self.behind(line)
        next(steps)
        ahead.close()
        assert look(steps, line, START + 60.0).until is None
        assert looked == []
        steps.close()


class TestWhatCanNotBeMet:
    def test_is_told_once_and_once_that_it_can_be_again(self, line: Line) -> None:
        add_resources(line.members, "T", ["T--01"])
        line.backend.acquire(Claimant("other", "other", Request("T")), NoJournal(), Patience())
        patience = Patience(warn=line.warnings.append)
        steps = line.backend.turn(Claimant("me", "me", Request("T", 2)), NoJournal(), patience)
        next(steps)
        remove_resources(line.members, "T", ["T--01"], force=True)
        look(steps, line, START + 1.0)
        look(steps, line, START + 2.0)
        assert len(line.warnings) == 1
        assert line.warnings[0].endswith(
            "a request for 2 can't be met; the request waits until the pool changes"
        )
        add_resources(line.members, "T", ["T--02"])
        look(steps, line, START + 3.0)
        look(steps, line, START + 4.0)
        assert line.warnings[1:] == ["the request can be met again; it keeps its queue position"]
        steps.close()


class TestWhyItWaits:
    def closed(self, line: Line, names: list[str]) -> None:
        line.sides.members.update(names, lambda each, _: cordon(each, is_cordoned=True))

    def test_is_told_to_the_first_where_something_is_free(self, line: Line) -> None:
        add_resources(line.members, "T", ["T--01", "T--02"])
        self.closed(line, ["T--01", "T--02"])
        steps = line.wait(report_seconds=10.0)
        next(steps)
        assert [each.closed for each in line.reports] == ["2 cordoned"]
        steps.close()
        with pytest.raises(NoLease, match=r"1 of 3 held \(2 cordoned\), nobody else waiting;"):
            next(line.wait(0))

    def test_is_not_told_to_others_and_not_where_all_is_held(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Sequence[str]] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                "leasectl.backends.pool.closed.why_closed", lambda _, types: asked.append(types)
            )
            first = line.wait(report_seconds=10.0)
            next(first)
        assert asked == []  # it would read the whole pool for nothing
        assert line.reports.pop().closed == ""
        add_resources(line.members, "T", ["T--01"])
        self.closed(line, ["T--01"])
        second = line.wait(report_seconds=10.0, claim_key="second")
        next(second)
        assert line.reports.pop().closed == ""
        for steps in (second, first):
            steps.close()

    def test_may_be_the_pace_which_is_told_instead(self, line: Line) -> None:
        add_resources(line.members, "T", ["T--01", "T--02"])
        line.pools.change_settings("T", PoolSettings(pace_seconds=30.0))
        line.backend.acquire(Claimant("other", "other", Request("T")), NoJournal(), Patience())
        self.closed(line, ["T--02"])
        line.time.advance(4.0)
        steps = line.wait(report_seconds=10.0)
        assert next(steps).until == START + 14.0
        (report,) = line.reports
        assert (report.next_grant_in_seconds, report.pace_seconds) == (26.0, 30.0)
        assert report.closed == ""
        steps.close()


class TestAReportThatCanNotBeMade:
    def test_is_an_outage_and_borne(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        steps = line.wait(report_seconds=10.0)
        next(steps)

        def away() -> None:
            raise AWAY

        with monkeypatch.context() as patch:
            patch.setattr(line.engine.waiters[-1], "standing", away)
            wanted = look(steps, line, START + 10.0)
        assert wanted.until == START + 11.0
        assert line.warnings == [
            "still waiting, most likely at the same queue position: etcd doesn't answer"
        ]
        assert look(steps, line, START + 11.0).until == START + 20.0
        look(steps, line, START + 20.0)
        assert [each.waited_seconds for each in line.reports] == [0.0, 20.0]
        steps.close()

    def test_is_the_end_where_the_place_in_the_queue_is_gone(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps = line.wait(report_seconds=10.0)
        next(steps)

        def away() -> None:
            raise AWAY

        monkeypatch.setattr(line.engine.waiters[-1], "standing", away)
        line.engine.waiters[-1].has_place = False
        with pytest.raises(BackendUnreachable, match="doesn't answer"):
            look(steps, line, START + 10.0)
        assert line.journal.said == ["to undo", "gave up"]


def test_what_can_not_be_tended_is_tried_each_second_and_not_in_a_spin(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    pools = store.pools
    pools.create_pool("T", ["T--00"])
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    pid = fork(signal.pause)
    holder = identify(pid)
    looked, recovered = list[float](), list[float]()

    def watched() -> list[Process]:
        """Asked for with each look."""
        looked.append(clock.elapsed())
        return [holder]

    patience = Patience(watched=watched, recover=lambda: recovered.append(clock.elapsed()))
    steps = backend.turn(Claimant("next", "next", Request("T")), NoJournal(), patience)
    wanted = next(steps)
    assert wanted.until is None
    (pidfd,) = [fd for fd in wanted.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]

    os.kill(pid, signal.SIGKILL)
    ending(pid)
    for tries in range(1, 4):
        wanted = steps.send({pidfd} if tries == 1 else set())
        assert (len(recovered), len(looked)) == (tries, 1 + tries)
        assert pidfd not in wanted.fds
        assert wanted.until == clock.elapsed() + 1.0
        manual_clock.advance(1.0)
    steps.close()
    assert pools.pools("T")[0].queue == ()

    late = backend.turn(Claimant("late", "late", Request("T")), NoJournal(), patience)
    assert next(late).until == clock.elapsed() + 1.0
    assert recovered[3:] == [clock.elapsed()]  # at once, as that one was dead already
    late.close()


def test_what_is_left_of_the_pace_is_told_to_its_end(manual_clock: ManualClock) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    pools = store.pools
    pools.create_pool("T", ["T--00", "T--01"], settings=PoolSettings(pace_seconds=10.0))
    backend = PoolBackend("contract:", MadeUpEngine(store), store.sides, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    manual_clock.advance(9.5)
    with pytest.raises(NoLease, match="next grant in 1s;"):
        asked = Claimant("next", "next", Request("T"))
        backend.acquire(asked, NoJournal(), Patience(wait_seconds=0))
