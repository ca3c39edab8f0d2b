"""Following a command to its end: it gets the signals that are for it, and a lost lease ends it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from leasectl.errors import LeaseLost
from leasectl.run.child import Child, Ending
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.plan import OnLost, Plan
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import sleep
from leasectl.system.signals import SignalDescriptor
from leasectl.text.wording import listed

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


class Supervisor:
    """Follows one command after the other.

    Args:
        plan: What is to be done when a lease is lost.
        signals: Those that this process gets.
        warn: Called with a line for people.
        clock: Where times come from.

    Attributes:
        asked_to_end: A signal has come by which somebody wants all of it to end.
    """

    def __init__(
        self, plan: Plan, signals: SignalDescriptor, *, warn: Callable[[str], None], clock: Clock
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._warn = warn
        self._clock = clock
        self.asked_to_end = False

    def supervise(self, child: Child, watch: LeaseWatch | None = None) -> Ending:
        """Let a child become its command, and follow that to its end.

        Args:
            child: Forked, and not yet started.
            watch: Of the lease that it runs under, if it does.

        Returns:
            How it ended.

        Raises:
            CommandNotFound, CannotExecute: It never became the command.
            LeaseLost: The lease was lost, and the command has ended for it.
            Interrupted: A signal arrived before there was a command to forward it to.
        """
        self._begin(child)
        loss = _Loss()
        self._wait_for_end(child, watch, loss)
        ending = child.reap()
        if watch is not None and loss.at is not None and self._plan.on_lost != "ignore":
            raise LeaseLost(
                f"the lease of {watch.pool_type} was lost while "
                f"{self._plan.name} ran, which was ended ({ending.describe()})"
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

    def _wait_for_end(self, child: Child, watch: LeaseWatch | None, loss: _Loss) -> None:
        while True:
            now = self._clock.elapsed()
            woken = sleep(
                wake_fds=(child.pidfd, self._signals.fd, *(watch.fds() if watch else ())),
                interrupts=(),
                until=earliest(watch.until(now), loss.kill_at) if watch else None,
                now=self._clock.elapsed,
            )
            if self._signals.fd in woken:
                self._forward_to(child, self._signals.read())
            if child.pidfd in woken:
                return
            if watch is not None:
                watch.look(woken)
                self._act_on_loss(child, watch, loss)

    def _forward_to(self, child: Child, arrived: Sequence[tuple[int, bool]]) -> None:
        for signum, sent_by_a_process in arrived:
            if signum in ENDING:
                self.asked_to_end = True
            # What the terminal sends, it sends to the command as well.
            if sent_by_a_process:
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
        why = f" ({watch.reason})" if watch.reason else ""
        self._warn(
            f"lost the lease on {listed(watch.names)}{why}: {self._plan.name} {_BECOMES[on_lost]}"
        )
        if on_lost == "ignore":
            watch.go_on_without()
        else:
            child.signal(signal.SIGKILL if on_lost == "kill" else signal.SIGTERM)
