"""leasectl.run.runner: one attempt after the other, each under a lease of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    Interrupted,
    InvalidRequest,
    LeaseError,
    LeaseLost,
)
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.run import leased_command, start_delay
from leasectl.run import runner as module
from leasectl.run.child import Child, Ending
from leasectl.run.plan import Plan
from leasectl.run.runner import Runner
from leasectl.run.supervision import Supervisor
from leasectl.system.poll import Interrupt
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.reclaiming import Operator
from tests.kit.waits import eventually, result_of

START = 1000.0  # of a manual clock
HOUR = 3600.0

pytestmark = pytest.mark.usefixtures("signals_as_before", "keeper")


class Job:
    """Runs scripts under leases, and keeps what is said of it.

    Attributes:
        said: What the script has written, line by line.
        warned: What people were told.
        interrupts: What was given to whoever sleeps before each acquisition.
        got: What was granted, and for how long it is held back.
        before, when_got: What a test does at those times.
    """

    def __init__(self, desk: Desk, folder: Path) -> None:
        self.desk = desk
        self.folder = folder
        self.warned: list[str] = []
        self.interrupts: list[Sequence[Interrupt]] = []
        self.got: list[tuple[Handle, float]] = []
        self.before: Callable[[], object] = lambda: None
        self.when_got: Callable[[], object] = lambda: None

    @property
    def said(self) -> list[str]:
        path = self.folder / "said"
        return path.read_text().splitlines() if path.exists() else []

    def runner(self, *command: str, request: Request, **planned: Any) -> Runner:
        environ = {"PATH": "/usr/bin:/bin", "DIR": str(self.folder), **planned.pop("environ", {})}
        return Runner(
            self._open,
            Plan(command, request, environ=environ, **planned),
            before_acquire=self._before,
            warn=self.warned.append,
            clock=self.desk.time.clock,
        )

    def run(self, script: str, *, request: Request | str = "T", **planned: Any) -> Ending:
        """Run a shell script; what it says it writes to `$DIR/said`."""
        request = Request(request) if isinstance(request, str) else request
        runner = self.runner("sh", "-c", script, request=request, **planned)
        return runner.run(Patience(wait_seconds=0), got=self._got)

    def _open(self) -> Service:
        return self.desk.service

    def _before(self, interrupts: Sequence[Interrupt]) -> None:
        self.interrupts.append(interrupts)
        self.before()

    def _got(self, handle: Handle, seconds: float) -> None:
        self.got.append((handle, seconds))
        self.when_got()


@pytest.fixture
def job(desk: Desk, tmp_path: Path) -> Job:
    desk.pool(1)
    return Job(desk, tmp_path)


def term() -> None:
    """Have TERM arrive at this thread: others may be there that don't block it."""
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


FAILS = "echo $LEASECTL_ATTEMPT $LEASECTL_NAMES >>$DIR/said; exit 4"
THRICE: dict[str, Any] = {"attempts": 3, "retry_on": (4, 5)}


def test_each_attempt_is_told_which_it_is_and_between_them_nothing_is_held(job: Job) -> None:
    held: list[Any] = []
    job.before = job.when_got = lambda: held.append(list(job.desk.held()))
    assert job.run(FAILS, **THRICE) == Ending(4)
    assert job.said == ["1 T--00", "2 T--00", "3 T--00"]
    assert [len(each) for each in job.interrupts] == [1, 1, 1]
    assert [seconds for _, seconds in job.got] == [0.0, 0.0, 0.0]
    assert job.warned == [
        "sh exited with 4; attempt 2 of 3 follows",
        "sh exited with 4; attempt 3 of 3 follows",
        "sh exited with 4; attempt 3 of 3 was the last",
    ]
    assert held == [[], ["T--00"]] * 3
    assert job.desk.held() == {}


@pytest.mark.parametrize("script", ["exit 0", "exit 3", "kill -TERM $$"])
def test_after_another_ending_none_follows(job: Job, script: str) -> None:
    job.run(script, **THRICE)
    assert (len(job.got), job.warned) == (1, [])


def test_until_the_command_follows_it_the_lease_follows_run(job: Job) -> None:
    runners: list[object] = []
    job.when_got = lambda: runners.append(job.desk.record(job.got[0][0]).runner)
    assert job.run("exit 0") == Ending(0)
    assert runners == [this_process()]


class TestWithoutALease:
    def test_none_follows_and_it_ends_as_it_did_before(self, job: Job) -> None:
        job.before = lambda: job.said and job.desk.acquire()
        assert job.run(FAILS, **THRICE) == Ending(4)
        assert job.said == ["1 T--00"]
        assert len(job.warned) == 2
        assert job.warned[1].endswith("; no further attempt; exiting like the last run of sh")

    def test_an_optional_one_goes_on(self, job: Job) -> None:
        script = "echo ${LEASECTL_NAMES-none} $LEASECTL_ATTEMPT >>$DIR/said; exit 4"
        outer = {"LEASECTL_NAMES": "U--00"}  # which is another's
        assert job.run(script, request="absent", optional=True, environ=outer, **THRICE) == Ending(
            4
        )
        assert job.said == ["none 1", "none 2", "none 3"]
        assert job.warned[0].startswith("continuing without a lease (--optional): ")
        assert job.got == []

    def test_an_optional_one_goes_on_where_the_server_goes_before_the_command_begins(
        self, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object, **__: object) -> None:
            raise BackendUnreachable("no answer")

        monkeypatch.setattr(leased_command, "announce", away)
        script = "echo ${LEASECTL_NAMES-none} >>$DIR/said; exit 3"
        assert job.run(script, optional=True) == Ending(3)
        assert job.said == ["none"]
        assert job.warned[0] == "continuing without a lease (--optional): no answer"
        assert job.desk.held() == {}
        with pytest.raises(BackendUnreachable):
            job.run(script)
        assert job.said == ["none"]

    def test_an_optional_one_runs_once_whatever_goes_wrong_under_it(
        self, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        supervise = Supervisor.supervise

        def fail(self: Supervisor, child: Child, *args: Any) -> Ending:
            supervise(self, child, *args)
            raise BackendUnreachable("no answer")

        monkeypatch.setattr(Supervisor, "supervise", fail)
        with pytest.raises(BackendUnreachable):
            job.run(FAILS, optional=True)
        assert job.said == ["1 T--00"]

    @pytest.mark.parametrize("error", [Cancelled("released"), InvalidRequest("a typo")])
    def test_an_optional_one_does_not_where_somebody_ends_it_or_it_makes_no_sense(
        self, job: Job, monkeypatch: pytest.MonkeyPatch, error: LeaseError
    ) -> None:
        def acquire(*_: object, **__: object) -> Handle:
            raise error

        monkeypatch.setattr(module, "acquire", acquire)
        with pytest.raises(type(error)):
            job.run(FAILS, optional=True)
        assert job.said == []


class TestThatWasTakenOrCanNotBegin:
    """What becomes of a further attempt itself counts, not how the one before ended."""

    def test_a_lost_lease_is_what_it_ends_with(self, job: Job) -> None:
        def take() -> None:
            if job.said:
                release_by_force(job.desk.service, ["T--00"], reason="stuck")

        job.when_got = take
        with pytest.raises(LeaseLost, match="stuck"):
            job.run(FAILS, **THRICE)
        assert job.said == ["1 T--00"]
        assert job.desk.held() == {}


class TestBeforeARetry:
    def test_it_has_no_lease_and_is_told_which_attempt_has_failed(self, job: Job) -> None:
        before = "echo ${LEASECTL_NAMES-none} $LEASECTL_ATTEMPT >>$DIR/said"
        assert job.run(FAILS, before_retry=before, **THRICE) == Ending(4)
        assert job.said == ["1 T--00", "none 1", "2 T--00", "none 2", "3 T--00"]

    @pytest.mark.parametrize(
        ("before", "how"), [("exit 7", "exit code 7"), ("kill -TERM $$", "ended by SIGTERM")]
    )
    def test_if_it_fails_no_attempt_follows(self, job: Job, before: str, how: str) -> None:
        assert job.run(FAILS, before_retry=before, **THRICE) == Ending(4)
        assert job.said == ["1 T--00"]
        assert job.warned[1:] == [f"--before-retry failed ({how}); no further attempt"]

    def test_who_asks_it_to_end_asks_all_to_end(self, job: Job) -> None:
        runs, thread = job.folder / "runs", threading.get_ident()

        def end(_: Service) -> None:
            eventually(runs.exists)
            signal.pthread_kill(thread, signal.SIGTERM)

        def begin() -> None:
            if len(job.interrupts) == 1:
                ended.append(job.desk.beside(end))

        ended: list[Any] = []
        job.before = begin
        before = "trap 'exit 0' TERM; echo >$DIR/runs; while :; do sleep 0.02; done"
        with pytest.raises(Interrupted) as raised:
            job.run(FAILS, before_retry=before, **THRICE)
        assert raised.value.signum == signal.SIGTERM
        result_of(ended[0])
        assert job.said == ["1 T--00"]


class TestSignals:
    def test_one_that_has_come_before_has_nothing_asked_for(self, job: Job) -> None:
        runner = job.runner("true", request=Request("T"))
        term()
        with pytest.raises(Interrupted):
            runner.run(Patience(wait_seconds=0))
        assert job.interrupts == []
        assert [tuple(row) for row in job.desk.state.query("SELECT last_grant FROM pool")] == [(0,)]

    def test_one_ends_the_sleep_before_an_acquisition(self, job: Job) -> None:
        def interrupted() -> None:
            term()
            ((interrupt,),) = job.interrupts
            interrupt.raise_()

        job.before = interrupted
        with pytest.raises(Interrupted):
            job.run(FAILS, optional=True)
        assert job.said == []
        assert job.desk.held() == {}

    def test_one_that_comes_with_the_lease_gives_it_back(self, job: Job) -> None:
        job.when_got = term
        with pytest.raises(Interrupted):
            job.run(FAILS, **THRICE)
        assert job.said == []
        assert job.desk.held() == {}


class TestWithAStartJitter:
    @pytest.fixture(autouse=True)
    def slept(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody sleeps: it is the time that they would wake at."""

        def sleep(*, until: float, **_: object) -> set[int]:
            desk.time.advance(until - desk.time.clock.elapsed())
            return set()

        monkeypatch.setattr(start_delay, "sleep", sleep)

    def test_each_attempt_is_held_back_for_another_time(self, job: Job) -> None:
        assert job.run(FAILS, start_jitter_seconds=HOUR, **THRICE) == Ending(4)
        drawn = [seconds for _, seconds in job.got]
        assert len(set(drawn)) == 3
        assert all(0 < seconds <= HOUR for seconds in drawn)
        assert job.desk.time.clock.elapsed() == pytest.approx(START + sum(drawn))

    def test_what_is_released_later_is_so_from_the_start_on(self, job: Job) -> None:
        due: list[float] = []
        job.when_got = lambda: due.extend(
            each.due_at for each in job.desk.service.handles.timers.armed()
        )
        request = Request("T", release_after_seconds=60.0)
        assert job.run("exit 0", request=request, start_jitter_seconds=HOUR) == Ending(0)
        ((_, seconds),) = job.got
        assert due == [pytest.approx(START + seconds + 60.0)]


class TestWhatTheResourcesAre:
    def put(self, job: Job, *properties: tuple[str, str]) -> None:
        job.desk.service.members.update(
            ["T--00"], lambda member, _: member._replace(properties=properties)
        )

    def test_the_command_is_told_and_not_what_an_outer_one_was_told(self, job: Job) -> None:
        self.put(job, ("region", "eu"))
        outer = {"LEASECTL_PROPERTY_REGION": "us", "LEASECTL_PROPERTY_ZONE": "b", "OTHER": "x"}
        says = "echo $LEASECTL_PROPERTY_REGION ${LEASECTL_PROPERTY_ZONE-none} $OTHER >>$DIR/said"
        assert job.run(says, environ=outer) == Ending(0)
        assert job.said == ["eu none x"]
        assert job.warned == []

    def test_what_it_can_not_be_told_people_are(self, job: Job) -> None:
        self.put(job, ("a-b", "1"), ("a.b", "2"))
        assert job.run("exit 0") == Ending(0)
        (warning,) = job.warned
        assert warning.startswith("LEASECTL_PROPERTY_A_B isn't set")


class TestThatDecidesWhatIsGivenBack:
    """A command of its own, beside the one that has the lease."""

    def run(self, job: Job, decides: str) -> Ending:
        """Ask for the lease once its command runs, which ends when the other has been asked."""

        def mark(service: Service) -> None:
            eventually((job.folder / "runs").exists)
            Operator(service.notes).mark(job.got[0][0])

        marked: list[Any] = []
        job.when_got = lambda: marked.append(job.desk.beside(mark))
        waits = "echo >$DIR/runs; until test -s $DIR/asked; do sleep 0.02; done"
        request = Request("T", on_reclaim="answer")
        ending = job.run(waits, request=request, on_reclaim=decides)
        result_of(marked[0])
        return ending

    def test_is_told_of_what_and_has_the_same_environment(self, job: Job) -> None:
        assert self.run(job, 'echo "$@" "$LEASECTL_NAMES" >$DIR/asked') == Ending(0)
        assert (job.folder / "asked").read_text() == "T--00 T--00\n"

    def test_ends_with_the_other(self, job: Job) -> None:
        assert self.run(job, "echo $$ >$DIR/asked; exec sleep 1000") == Ending(0)
        with pytest.raises(ProcessLookupError):
            os.kill(int((job.folder / "asked").read_text()), 0)
