"""Following a command to its end: it gets the signals that are for it, and a lost lease ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leasectl.errors import LeaseLost
from leasectl.run.child import Child, Ending
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.plan import OnLost, Plan
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import READABLE, Interrupt, sleep
from leasectl.system.signals import SignalDescriptor
from leasectl.typed.hints import Callable, Protocol

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
# By which somebody wants `run` itself to end, and no further attempt.
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
# What becomes of a command whose lease is lost.
_BECOMES: dict[OnLost, str] = {
    "term": "gets TERM",
    "kill": "is killed",
    "ignore": "goes on without it",
}


@dataclass
class _Loss:
    """What has been done about a lost lease; times of CLOCK_BOOTTIME."""

    at: float | None = None
    kill_at: float | None = None


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
        plan: What is to be done when a lease is lost.
        signals: Those that this process gets.
        warn: Called with a line for people.
        clock: Where times come from.

    Attributes:
        asked_by: The first signal that has come by which somebody wants all of it to end; or None.
    """

    def __init__(
        self, plan: Plan, signals: SignalDescriptor, *, warn: Callable[[str], None], clock: Clock
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._warn = warn
        self._clock = clock
        self.asked_by: int | None = None

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
        if watch is not None:
            child.kill_at(watch.last_moment)
        self._begin(child)
        loss = _Loss()
        self._wait_for_end(child, watch, loss, beside)
        ending = child.reap()
        # Who was stopped for so long finds that its command was killed for it.
        is_lost = loss.at is not None or (ending.signum == signal.SIGKILL and child.is_overdue())
        if watch is not None and is_lost and self._plan.on_lost != "ignore":
            raise LeaseLost(
                f"the lease of {watch.subject} was lost while "
                f"{self._plan.name} ran, which was ended ({ending.describe()})"
            )
        if watch is not None and not is_lost and watch.has_run_out(self._clock.elapsed()):
            self._warn(
                f"the lease on {watch.held} ran out before {self._plan.name} was seen to have "
                "ended, as this process didn't run: somebody else may have had it meanwhile"
            )
        return ending

    def _begin(self, child: Child) -> None:
        """Start a child, unless something came by now that its process may not have heard of."""
        arrived = self._signals.read()
        for signum, _ in arrived:
            if signum in ENDING:
                child.abandon()
                self._signals.interrupt(signum)
        child.start()
        self._forward_to(child, arrived)

    def _wait_for_end(
        self, child: Child, watch: LeaseWatch | None, loss: _Loss, beside: Sequence[Beside]
    ) -> None:
        looked_after: tuple[Beside, ...] = (*([watch] if watch else []), *beside)
        while True:
            now = self._clock.elapsed()
            woken = sleep(
                wake_fds=(
                    child.end_fd,
                    self._signals.fd,
                    *(fd for each in looked_after for fd in each.fds()),
                ),
                interrupts=(),
                until=earliest(loss.kill_at, *(each.until(now) for each in looked_after)),
                now=self._clock.elapsed,
            )
            if self._signals.fd in woken:
                self._forward_to(child, self._signals.read())
            if child.end_fd in woken:
                return
            for each in looked_after:
                each.look(woken)
            if watch is not None:
                child.kill_at(watch.last_moment)
                self._act_on_loss(child, watch, loss)

    def _forward_to(self, child: Child, arrived: Sequence[tuple[int, bool]]) -> None:
        for signum, sent_by_a_process in arrived:
            if signum in ENDING:
                self.asked_by = self.asked_by or signum
            # What the terminal sends, it sends to the command as well, but for the hang-up, which
            # only the leader of its session gets.
            if sent_by_a_process or (signum == signal.SIGHUP and os.getsid(0) == os.getpid()):
                child.signal(signum)

    def _act_on_loss(self, child: Child, watch: LeaseWatch, loss: _Loss) -> None:
        now = self._clock.elapsed()
        if loss.at is None and watch.is_lost(now):
            self._begin_loss(child, watch, loss, now)
        elif loss.kill_at is not None and now >= loss.kill_at:
            loss.kill_at = None
            child.signal(signal.SIGKILL)

    def _begin_loss(self, child: Child, watch: LeaseWatch, loss: _Loss, now: float) -> None:
        on_lost = self._plan.on_lost
        loss.at = now
        loss.kill_at = watch.kill_at(now) if on_lost == "term" else None
        if on_lost == "ignore":
            watch.go_on_without()
        else:
            child.signal(signal.SIGKILL if on_lost == "kill" else signal.SIGTERM)
        # Afterwards, as it may take a moment.
        why = f" ({watch.reason})" if watch.reason else ""
        self._warn(f"lost the lease on {watch.held}{why}: {self._plan.name} {_BECOMES[on_lost]}")
