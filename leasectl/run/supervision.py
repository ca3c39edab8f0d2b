"""Follow a command: forward signals, end it when its lease is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from leasectl.errors import LeaseLost
from leasectl.run import tree
from leasectl.run.child import Child, Ending
from leasectl.run.lease_watch import GRACE_AFTER_LOSS_SECONDS, LeaseWatch
from leasectl.run.plan import OnLost, Plan
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import READABLE, Alarm, Interrupt, is_readable, sleep
from leasectl.system.signals import SignalDescriptor
from leasectl.text.wording import printable

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
# The signals that `run` reads from its descriptor: SIGCHLD tells it of orphans that it has adopted.
READ = (*FORWARDED, signal.SIGCHLD)
# These ask `run` itself to end, without a further attempt.
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
# For messages: what happens to a command whose lease is lost.
_BECOMES: dict[OnLost, str] = {
    "term": "sending TERM to {}",
    "kill": "killing {}",
    "ignore": "{} continues without it",
}


T = TypeVar("T")

# How often to look at the rest of a tree that is being ended.
_LOOK_SECONDS = 0.1
_AFTER_ERROR_SECONDS = 0.2
# After the deadline, for processes that were killed in time and are still on their way out.
_REAP_SECONDS = 5.0


@dataclass
class _Course:
    """What has happened to a command so far; times of CLOCK_BOOTTIME.

    Attributes:
        arrived: Signals that came before it began.
        lost_at: When its lease was found lost.
        kill_at: When the command is killed for that.
        has_ended: The command itself has ended.
        ends_tree: All that it started has to end with it.
        is_killed: It was sent KILL, which is repeated.
        kill_rest_at: When the rest of the tree is killed; None before it got TERM.
        last_moment: When all of it is killed, as its lease may be another's soon.
        deadline: When its lease may be another's.
        is_left: Some of it can't be ended, and the lease has run out meanwhile.
    """

    arrived: Sequence[tuple[int, bool]] = ()
    lost_at: float | None = None
    kill_at: float | None = None
    has_ended: bool = False
    ends_tree: bool = False
    is_killed: bool = False
    kill_rest_at: float | None = None
    last_moment: float | None = None
    deadline: float | None = None
    is_left: bool = False


class Beside(Protocol):
    """What is looked after beside a command; its lease is."""

    def fds(self) -> list[int]:
        """What becomes readable when there is something to look at."""

    def until(self, now: float) -> float | None:
        """When there is something to look at again at the latest, CLOCK_BOOTTIME."""

    def look(self, woken: Collection[int]) -> None:
        """Do what the descriptors that have something to say, and the time, ask for."""


class Supervisor:
    """Follows one command after the other.

    Args:
        plan: What to do when a lease is lost.
        signals: This process's signals.
        warn: Called with a line for people.
        clock: Where times come from.

    Attributes:
        asked_by: The first signal that asked `run` itself to end; None before it.
    """

    def __init__(
        self, plan: Plan, signals: SignalDescriptor, *, warn: Callable[[str], None], clock: Clock
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._warn = warn
        self._clock = clock
        self._alarm = Alarm()
        self.asked_by: int | None = None
        self._has_warned: set[str] = set()
        self._has_failed = False

    @property
    def asked_to_end(self) -> bool:
        """Whether such a signal has come."""
        return self.asked_by is not None

    def interrupt(self) -> Interrupt:
        """What ends a wait while there is no command: a signal by which all is to end."""
        return Interrupt(self._signals.fd, READABLE, self.check)

    def check(self) -> None:
        """Raise Interrupted if such a signal has come."""
        for signum, _ in self._signals.read():
            if signum in ENDING:
                self._signals.interrupt(signum)

    def supervise(
        self, child: Child, watch: LeaseWatch | None = None, beside: Sequence[Beside] = ()
    ) -> Ending:
        """Let a child become its command, and follow that to its end.

        Args:
            child: Forked, and not yet started.
            watch: Of the lease that it runs under, if it does.
            beside: What else is to be looked after meanwhile.

        Returns:
            How it ended.

        Raises:
            CommandNotFound, CannotExecute: It never became the command.
            LeaseLost: The lease was lost, and the command has ended for it.
            Interrupted: A signal arrived before there was a command to forward it to.
        """
        course = _Course()
        if watch is not None:
            self._note_deadline(child, watch, course)
            if watch.deadline is not None:
                self._alarm.set(watch.last_moment)  # the command may leave no memory for a timer
        course.arrived = self._begin(child)
        self._follow(child, watch, course, beside)
        self._try(self._alarm.close)
        if course.is_left and not course.has_ended:
            assert watch is not None
            raise LeaseLost(
                f"{self._plan.name} can't be stopped and still runs, although its lease of "
                f"{watch.subject} was lost"
            )
        ending = child.reap()
        # If this process was stopped past the deadline, the warden has killed the command.
        is_lost = course.lost_at is not None or (
            ending.signum == signal.SIGKILL and (course.is_killed or child.is_overdue())
        )
        if watch is not None and is_lost and self._plan.on_lost != "ignore":
            raise LeaseLost(
                f"{self._plan.name} was stopped ({ending.describe()}), because its lease "
                f"of {watch.subject} was lost"
            )
        if watch is not None and not is_lost and watch.has_run_out(self._clock.elapsed()):
            self._warn(
                f"the lease on {watch.held} expired before {self._plan.name} ended, because this "
                "process was suspended; another holder may have had it meanwhile"
            )
        return ending

    def settle(self, child: Child | None) -> None:
        """Return only when nothing of a command lives, or it has been seen to its end before.

        This is what stands between any error and the release of a lease: a command that still runs
        is killed with its tree, and waited for.
        """
        if child is None or child.is_settled:
            return
        if not child.has_begun:
            child.abandon()
            return
        now = self._clock.elapsed()
        course = _Course(ends_tree=True, kill_at=now, kill_rest_at=now)
        self._follow(child, None, course, ())
        child.reap()

    def _begin(self, child: Child) -> Sequence[tuple[int, bool]]:
        """Start a child, unless something came by now that its process may not have heard of."""
        arrived = self._signals.read()
        for signum, _ in arrived:
            if signum in ENDING:
                child.abandon()
                self._signals.interrupt(signum)
        child.start()
        return arrived

    def _follow(
        self, child: Child, watch: LeaseWatch | None, course: _Course, beside: Sequence[Beside]
    ) -> None:
        """Return when nothing is left of a command that has to end with it; raise nothing before.

        This is the one place that keeps the rule: while a command lives, its lease is kept. Each
        step of a round is taken whatever becomes of the others. An error is reported once, and what
        failed is tried again. What ends the command at its lease's last moment needs the clock and
        what was noted of the deadline, and nothing that may fail for good beside it.
        """
        looked_after: tuple[Beside, ...] = (*([watch] if watch else []), *beside)
        while not self._has_followed(child, watch, course, looked_after):
            pass
        child.is_settled = True

    def _has_followed(
        self,
        child: Child,
        watch: LeaseWatch | None,
        course: _Course,
        looked_after: Sequence[Beside],
    ) -> bool:
        """Sleep, and take each step of a round; return whether it was the last."""
        if self._has_failed:  # a lasting failure must not keep a processor busy
            self._has_failed = False
            time.sleep(_AFTER_ERROR_SECONDS)
        arrived, course.arrived = course.arrived, ()
        if arrived:
            self._try(self._forward_to, child, arrived, course)
        woken = self._try(self._sleep, child, watch, course, looked_after) or set()
        self._try(lambda: self._forward_to(child, self._signals.read(), course))
        if not child.has_warden and self._signals.fd in woken:
            self._try(child.reap_orphans)
        if not course.has_ended:
            is_over = child.end_fd in woken or self._try(is_readable, child.end_fd, 0)
            course.has_ended = bool(is_over)
        if course.has_ended and not course.ends_tree:
            return True
        for each in looked_after:
            self._try(each.look, woken)
        if watch is not None:
            self._try(self._note_deadline, child, watch, course)
            self._try(self._act_on_loss, child, watch, course)
        elif course.kill_at is not None:
            self._try(self._kill, child, course)
        self._try(self._act_on_last_moment, child, course)
        if not course.ends_tree:
            return False
        is_gone = self._try(self._has_ended_tree, child, course)
        if is_gone is None:  # how much is left isn't known
            is_gone = self._try(self._gives_up, child, course, (), ())
        return bool(is_gone)

    def _sleep(
        self,
        child: Child,
        watch: LeaseWatch | None,
        course: _Course,
        looked_after: Sequence[Beside],
    ) -> set[int]:
        now = self._clock.elapsed()
        fds, until = [self._signals.fd], [course.kill_at]
        if not course.has_ended:
            fds.append(child.end_fd)
            if course.kill_rest_at is None and self._plan.on_lost != "ignore":
                until.append(course.last_moment)
        if watch is not None and course.lost_at is None:
            # It may have been lost since the last look: this process may have been stopped.
            until.append(now if self._try(watch.is_lost, now) else None)
        if course.kill_rest_at is not None or (course.has_ended and course.ends_tree):
            until.append(now + _LOOK_SECONDS)
        for each in looked_after:
            try:
                fds += each.fds()
                until.append(each.until(now))
            except BaseException as error:
                self._report(error)
                until.append(now)
        wake_at = earliest(*until)
        self._try(self._alarm.set, None if course.deadline is None else wake_at)
        fds += self._alarm.fds
        return sleep(wake_fds=fds, interrupts=(), until=wake_at, now=self._clock.elapsed)

    def _forward_to(
        self, child: Child, arrived: Sequence[tuple[int, bool]], course: _Course
    ) -> None:
        for signum, sent_by_a_process in arrived:
            if signum not in FORWARDED:
                continue
            if signum in ENDING:
                self.asked_by = self.asked_by or signum
            # The terminal sends its signals to the command as well, except the hang-up, which only
            # the leader of its session gets.
            if sent_by_a_process or (signum == signal.SIGHUP and os.getsid(0) == os.getpid()):
                course.ends_tree = course.ends_tree or signum in ENDING
                self._send(child, signum, course)

    def _send(self, child: Child, signum: int, course: _Course) -> None:
        """Signal the command; end the rest of its tree at once if it can't be signalled itself."""
        try:
            if child.signal(signum):
                return
        except Exception as error:
            self._report(error)
            if child.has_warden:  # it kills at the last moment by itself
                return
            if not tree.send({child.pid}, signum):
                return
        self._warn_once(
            f"{self._plan.name} belongs to another user, so run can't signal it; it "
            "keeps the lease until the command ends or the lease expires"
        )
        if course.ends_tree and course.kill_rest_at is None:
            self._begin_rest(child, course)

    def _note_deadline(self, child: Child, watch: LeaseWatch, course: _Course) -> None:
        course.deadline, course.last_moment = watch.deadline, watch.last_moment
        if not course.has_ended:
            child.kill_at(course.last_moment)

    def _act_on_loss(self, child: Child, watch: LeaseWatch, course: _Course) -> None:
        now = self._clock.elapsed()
        if course.lost_at is None and watch.is_lost(now):
            self._begin_loss(child, watch, course, now)
        elif course.kill_at is not None and now >= course.kill_at:
            self._kill(child, course)

    def _act_on_last_moment(self, child: Child, course: _Course) -> None:
        """Kill a command whose time is over, also if nothing else told that its lease is lost."""
        now = self._clock.elapsed()
        is_over = course.last_moment is not None and now >= course.last_moment
        if is_over and self._plan.on_lost != "ignore" and course.kill_rest_at is None:
            self._kill(child, course)

    def _kill(self, child: Child, course: _Course) -> None:
        course.ends_tree, course.is_killed = True, True
        course.kill_at, course.kill_rest_at = None, self._clock.elapsed()
        # First: where this process is no subreaper, it doesn't adopt them.
        rest = self._try(child.descendants) or set()
        self._try(self._send, child, signal.SIGKILL, course)
        tree.send(rest, signal.SIGKILL)

    def _begin_loss(self, child: Child, watch: LeaseWatch, course: _Course, now: float) -> None:
        on_lost = self._plan.on_lost
        course.lost_at = now
        course.kill_at = watch.kill_at(now) if on_lost == "term" else None
        if on_lost == "ignore":
            self._try(watch.go_on_without)
        else:
            course.ends_tree = True
            if on_lost == "kill":
                course.is_killed, course.kill_rest_at = True, now
            self._send(child, signal.SIGKILL if on_lost == "kill" else signal.SIGTERM, course)
        # Afterwards, as it may take a moment.
        self._try(self._say_lost, watch, on_lost)

    def _say_lost(self, watch: LeaseWatch, on_lost: OnLost) -> None:
        why = f" ({watch.reason})" if watch.reason else ""
        what = _BECOMES[on_lost].format(self._plan.name)
        self._warn(f"lost the lease of {watch.held}{why}; {what}")

    # ---- the rest of the tree

    def _begin_rest(self, child: Child, course: _Course) -> None:
        course.kill_rest_at = self._clock.elapsed() + GRACE_AFTER_LOSS_SECONDS
        tree.send(child.descendants(), signal.SIGTERM)

    def _has_ended_tree(self, child: Child, course: _Course) -> bool:
        """End what is left of a tree; return whether nothing is, or nothing can be done."""
        now = self._clock.elapsed()
        if child.has_warden and course.has_ended:
            return True  # the warden ends the rest before it is let go
        if course.has_ended:
            child.reap_orphans()
            if not child.descendants():
                return True
            if course.kill_rest_at is None:
                self._begin_rest(child, course)
        kill_at = earliest(course.kill_rest_at, course.last_moment)
        if kill_at is None or now < kill_at:
            return False
        rest = child.descendants()
        refused = tree.send(rest, signal.SIGKILL)
        is_last = course.last_moment is not None and now >= course.last_moment
        if (is_last or course.is_killed) and not course.has_ended and not child.has_warden:
            refused |= tree.send({child.pid}, signal.SIGKILL)
        return self._gives_up(child, course, rest, refused)

    def _gives_up(
        self, child: Child, course: _Course, rest: Collection[int], refused: Collection[int]
    ) -> bool:
        """Tell whether processes are left behind that can't be ended, and say so."""
        now, deadline = self._clock.elapsed(), course.deadline
        if deadline is None:
            return False
        if now < deadline or (not refused and now < deadline + _REAP_SECONDS):
            return False
        course.is_left = True
        left = {*rest, *refused, *(() if course.has_ended else (child.pid,))}
        pids = ", ".join(map(str, sorted(left))) or "of the command"
        self._warn_once(
            f"process {pids} can't be ended and still runs although the lease has expired; only "
            "its fencing token distinguishes it from the next holder"
        )
        return True

    # ---- errors

    def _try(self, step: Callable[..., T], *arguments: Any) -> T | None:
        """Take a step that may fail without keeping others from theirs; None if it failed."""
        try:
            return step(*arguments)
        except BaseException as error:
            self._report(error)
            return None

    def _report(self, error: BaseException) -> None:
        self._has_failed = True
        text = printable(str(error) or type(error).__name__, longest=300)
        self._warn_once(f"while watching {self._plan.name}: {text}; trying again")

    def _warn_once(self, line: str) -> None:
        if line in self._has_warned:
            return
        self._has_warned.add(line)
        with contextlib.suppress(BaseException):  # a full stderr must not end the supervision
            self._warn(line)
