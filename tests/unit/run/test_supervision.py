"""leasectl.run.supervision: what comes before a command and while it runs, and what it gets."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Callable, cast

import pytest

from leasectl.errors import Interrupted, LeaseLost
from leasectl.model import Request
from leasectl.run.child import Child, Ending
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.plan import OnLost, Plan
from leasectl.run.supervision import Beside, Supervisor
from leasectl.system import poll
from leasectl.system.clock import Clock, boottime_seconds
from leasectl.system.poll import is_readable
from leasectl.system.signals import SignalDescriptor
from tests.kit.forking import ending, fork

_SAYS_THAT_IT_HAS_BEGUN = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


class Arrived(SignalDescriptor):
    """Signals that have arrived by the time that somebody looks.

    Args:
        arrived: Each with whether a process has sent it, and not the terminal.
    """

    def __init__(self, *arrived: tuple[int, bool]) -> None:
        self.fd, self._end = os.pipe()
        self.mask_before = set()
        self._arrived = list(arrived)
        self._interrupted_by = None

    def read(self) -> list[tuple[int, bool]]:
        if is_readable(self.fd, 0):
            os.read(self.fd, 100)
        arrived, self._arrived = self._arrived, []
        return arrived

    def arrive(self, *arrived: tuple[int, bool]) -> None:
        """Have more arrive while somebody waits for them."""
        self._arrived += arrived
        if arrived:
            os.write(self._end, b"!")

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._end)


def supervise(signals: Arrived, said: Path) -> int | None:
    argv = [sys.executable, "-c", _SAYS_THAT_IT_HAS_BEGUN, str(said)]
    plan = Plan(
        command=tuple(argv),
        request=Request("T"),
        attempts=1,
        retry_on=frozenset(),
        before_retry=None,
        on_lost="term",
        start_jitter_seconds=0.0,
        optional=False,
        environ=dict(os.environ),
    )
    try:
        child = Child(argv[0], argv, os.environ, signals)
        return Supervisor(plan, signals, warn=print, clock=Clock()).supervise(child).code
    finally:
        signals.close()


@pytest.mark.parametrize("sent_by_a_process", [False, True])
def test_no_command_begins_after_a_signal_that_is_to_end_it(
    tmp_path: Path, sent_by_a_process: bool
) -> None:
    with pytest.raises(Interrupted):  # the terminal's came to nobody else: there was no command
        supervise(Arrived((signal.SIGINT, sent_by_a_process)), tmp_path / "said")
    assert not (tmp_path / "said").exists()


def test_one_that_is_of_no_matter_is_none(tmp_path: Path) -> None:
    assert supervise(Arrived((signal.SIGWINCH, False)), tmp_path / "said") == 0
    assert (tmp_path / "said").exists()


def test_while_there_is_no_command_such_a_signal_ends_a_wait_and_others_do_not() -> None:
    signals = Arrived((signal.SIGWINCH, True))
    supervisor = Supervisor(Plan((), Request("T")), signals, warn=print, clock=Clock())
    supervisor.check()
    signals.close()
    signals = Arrived((signal.SIGTERM, True))
    supervisor = Supervisor(Plan((), Request("T")), signals, warn=print, clock=Clock())
    with pytest.raises(Interrupted):
        supervisor.check()
    signals.close()


def arrive(signum: int) -> None:
    """Have a signal come to this thread: others may be there that don't block it."""
    signal.pthread_kill(threading.get_ident(), signum)


class Watch:
    """Of a lease that a test has be lost, or run out.

    Attributes:
        looks: What happens at each look after it.
    """

    subject, held, reason = "T", "T--00", "stuck"

    def __init__(self, looks: Callable[[Watch], object] = lambda watch: None) -> None:
        self.looks = looks
        self.is_gone = False
        self.last_moment: float | None = None
        self.deadline: float | None = None
        self.kill_in = 60.0

    def fds(self) -> list[int]:
        return []

    def until(self, now: float) -> float | None:
        return None if self.is_gone else now + 0.01

    def look(self, woken: Collection[int]) -> None:
        self.looks(self)

    def is_lost(self, now: float) -> bool:
        return self.is_gone

    def has_run_out(self, now: float) -> bool:
        return self.last_moment is not None and now >= self.last_moment

    def kill_at(self, now: float) -> float:
        return now + self.kill_in

    def go_on_without(self) -> None:
        raise AssertionError("it ends the command")


class Following:
    """Follows shell scripts, which find their folder in $DIR.

    Attributes:
        supervisor: Who does.
        warned: What people were told.
        child: The last one.
    """

    def __init__(self, signals: SignalDescriptor, folder: Path, on_lost: OnLost) -> None:
        self._signals = signals
        self._environ = {**os.environ, "DIR": str(folder)}
        self.folder = folder
        self.warned: list[str] = []
        plan = Plan(("job",), Request("T"), on_lost=on_lost)
        self.supervisor = Supervisor(plan, signals, warn=self.warned.append, clock=Clock())

    def run(
        self, script: str, watch: Watch | None = None, *beside: Beside, ends_with_us: bool = False
    ) -> Ending:
        argv = ("/bin/sh", "-c", script)
        self.child = Child(argv[0], argv, self._environ, self._signals, ends_with_us=ends_with_us)
        try:
            return self.supervisor.supervise(self.child, cast("LeaseWatch | None", watch), beside)
        finally:
            self.child.let_go()

    def lose(self, watch: Watch) -> None:
        """Have the lease be lost once the script has begun."""
        watch.is_gone = (self.folder / "began").exists()


@pytest.fixture
def on_lost() -> OnLost:
    return "term"


@pytest.fixture
def following(signals: SignalDescriptor, tmp_path: Path, on_lost: OnLost) -> Following:
    return Following(signals, tmp_path, on_lost)


BEGINS = "echo >$DIR/began; "
WAITS = "while :; do sleep 0.01; done"


def waits_for(name: str) -> str:
    """Wait for a file of that name, for some seconds."""
    return f"i=0; until test -e $DIR/{name} || test $((i += 1)) -gt 3000; do sleep 0.01; done"


class TestSignals:
    def test_what_came_before_it_begins_it_gets(self, following: Following) -> None:
        arrive(signal.SIGUSR1)
        assert following.run("exec sleep 60") == Ending(None, signal.SIGUSR1)
        assert not following.supervisor.asked_to_end

    def test_of_two_the_first_counts(self, tmp_path: Path) -> None:
        signals = Arrived()
        following = Following(signals, tmp_path, "term")
        arrived = iter([signal.SIGINT, signal.SIGTERM])

        def send(watch: Watch) -> None:
            if (tmp_path / "began").exists():
                signals.arrive(*((signum, True) for signum in arrived))

        traps = "trap : INT; trap 'exit 5' TERM; "
        assert following.run(traps + BEGINS + WAITS, Watch(send)) == Ending(5)
        signals.close()
        assert following.supervisor.asked_by == signal.SIGINT

    @pytest.mark.parametrize(
        ("signum", "leads_its_session", "ending"),
        [
            (signal.SIGINT, False, 3),
            (signal.SIGINT, True, 3),
            (signal.SIGHUP, False, 3),
            (signal.SIGHUP, True, 5),  # which nobody else gets
        ],
    )
    def test_the_terminals_have_reached_it_already_but_ask_for_the_end_too(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        signum: int,
        leads_its_session: bool,
        ending: int,
    ) -> None:
        signals = Arrived()
        following = Following(signals, tmp_path, "term")
        monkeypatch.setattr(os, "getsid", lambda pid: os.getpid() if leads_its_session else 1)
        arrived = iter([signum])

        def send(watch: Watch) -> None:
            if (tmp_path / "began").exists():
                for each in arrived:
                    signals.arrive((each, False))
                    return
                (tmp_path / "end").touch()  # by now it would have it

        script = "trap 'exit 5' HUP INT; " + BEGINS + waits_for("end") + "; exit 3"
        assert following.run(script, Watch(send)) == Ending(ending)
        signals.close()
        assert following.supervisor.asked_by == signum


class ExpiringWatch(Watch):
    """Of a lease that runs out soon."""

    def __init__(self) -> None:
        super().__init__()
        self.last_moment = self.deadline = boottime_seconds() + 1000
        self.give_up_at = boottime_seconds() + 0.05

    def passed(self) -> Watch:
        """Make its time one that has passed since the last look, as `until` tells it no more."""
        self.give_up_at = boottime_seconds() - 1
        return self

    def until(self, now: float) -> float | None:
        return self.give_up_at if now < self.give_up_at else None

    def is_lost(self, now: float) -> bool:
        return now >= self.give_up_at


class TestALostLease:
    def test_is_noticed_also_when_its_time_passed_in_suspend(
        self, following: Following, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The timeout of poll(2) isn't over by then: it doesn't count that time."""
        monkeypatch.setattr(poll, "milliseconds", lambda until, now: None)
        with pytest.raises(LeaseLost, match="SIGTERM"):
            following.run("exec sleep 30", ExpiringWatch())

    @pytest.mark.parametrize(
        ("on_lost", "told", "ending"),
        [("term", "sending TERM to", "exit code 5"), ("kill", "killing", "ended by SIGKILL")],
    )
    def test_ends_the_command_as_was_wanted(
        self, following: Following, told: str, ending: str
    ) -> None:
        with pytest.raises(
            LeaseLost, match=rf"job was stopped \({ending}\), because its lease of T"
        ):
            following.run("trap 'exit 5' TERM; " + BEGINS + WAITS, Watch(following.lose))
        assert following.warned == [f"lost the lease of T--00 (stuck); {told} job"]

    def test_ends_also_one_that_heeds_no_term(self, following: Following) -> None:
        watch = Watch(following.lose)
        watch.reason, watch.kill_in = "", 0.05
        with pytest.raises(LeaseLost, match="ended by SIGKILL"):
            following.run("trap '' TERM; " + BEGINS + WAITS, watch)
        assert following.warned == ["lost the lease of T--00; sending TERM to job"]

    @pytest.mark.parametrize("on_lost", ["ignore"])
    def test_is_nothing_to_one_that_goes_on_without(self, following: Following) -> None:
        watch = Watch(following.lose)
        watch.kill_in = 0.0
        watch.go_on_without = (following.folder / "told").touch  # type: ignore[method-assign]
        assert following.run(BEGINS + waits_for("told") + "; exit 3", watch) == Ending(3)
        assert (following.folder / "told").exists()
        assert following.warned == ["lost the lease of T--00 (stuck); job continues without it"]


class TestALastMoment:
    """Of a command that ends with us: at that it is killed whether anybody looks or not."""

    @pytest.fixture
    def watch(self) -> Watch:
        """Of a lease that is never told to be lost."""

        def over(watch: Watch) -> None:
            watch.last_moment = boottime_seconds() - 1

        return Watch(over)

    def test_is_told_anew_at_each_look(self, following: Following, watch: Watch) -> None:
        with pytest.raises(LeaseLost):
            following.run("sleep 60", watch, ends_with_us=True)

    @pytest.mark.parametrize("on_lost", ["ignore"])
    def test_that_has_passed_is_no_loss_to_one_that_goes_on_without(
        self, following: Following, watch: Watch
    ) -> None:
        assert following.run("sleep 60", watch, ends_with_us=True).signum == signal.SIGKILL

    @pytest.mark.parametrize("ends_with_us", [False, True])
    def test_that_is_ahead_is_not_what_has_killed_it(
        self, following: Following, ends_with_us: bool
    ) -> None:
        watch = Watch()
        watch.last_moment = boottime_seconds() + 1000
        ending = following.run("kill -KILL $$", watch, ends_with_us=ends_with_us)
        assert ending == Ending(None, signal.SIGKILL)

    def test_that_has_passed_is_nothing_to_a_command_that_ends_by_itself(
        self, following: Following
    ) -> None:
        def over(watch: Watch) -> None:
            (following.folder / "looked").touch()
            os.waitid(os.P_PID, following.child.pid, os.WEXITED | os.WNOWAIT)
            watch.last_moment = boottime_seconds() - 1

        assert following.run(waits_for("looked") + "; exit 3", Watch(over)) == Ending(3)
        (warned,) = following.warned
        assert warned.startswith("the lease on T--00 expired before job ended")

    def test_that_is_ahead_is_not_spoken_of(self, following: Following) -> None:
        watch = Watch()
        watch.last_moment = boottime_seconds() + 1000
        assert following.run("exit 3", watch) == Ending(3)
        assert following.warned == []


class TestWhatIsLookedAfterBeside:
    class Beside:
        """It has something to say once, and then at some time."""

        def __init__(self, folder: Path) -> None:
            self.folder = folder
            self.fd, self._write_fd = os.pipe()
            os.write(self._write_fd, b"!")
            self.looked: list[list[int]] = []
            self.at: float | None = None

        def fds(self) -> list[int]:
            return [self.fd]

        def until(self, now: float) -> float | None:
            return self.at

        def look(self, woken: Collection[int]) -> None:
            self.looked.append([fd for fd in woken if fd == self.fd])
            if len(self.looked) == 1:
                os.read(self.fd, 1)
                self.at = boottime_seconds() + 0.01
            else:
                self.at = None
                (self.folder / "end").touch()

        def close(self) -> None:
            os.close(self.fd)
            os.close(self._write_fd)

    @pytest.fixture
    def beside(self, tmp_path: Path) -> Iterator[TestWhatIsLookedAfterBeside.Beside]:
        beside = self.Beside(tmp_path)
        yield beside
        beside.close()

    def test_is_looked_at_when_it_says_so_and_when_its_time_has_come(
        self, following: Following, beside: TestWhatIsLookedAfterBeside.Beside
    ) -> None:
        assert following.run(waits_for("end") + "; exit 3", None, beside) == Ending(3)
        assert beside.looked == [[beside.fd], []]


def test_it_is_not_stopped_for_what_it_says_to_a_terminal_that_another_has() -> None:
    def say() -> None:
        SignalDescriptor([signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTTOU)  # as a terminal with tostop

    assert ending(fork(say)) == 0
