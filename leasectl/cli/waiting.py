"""What a command does while it waits: show progress, heed signals, notice that nobody listens."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Callable, NamedTuple

from leasectl.backends.contract import Patience, Progress
from leasectl.backends.kinds import either
from leasectl.cli.output import note, when_due
from leasectl.errors import Cancelled, LeaseError
from leasectl.model import Handle, Process, Request
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import READABLE, Interrupt, sleep
from leasectl.system.process import open_pidfd
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration
from leasectl.text.wording import listed

TERMINAL_REPORT_SECONDS = 1.0
LOG_REPORT_SECONDS = 60.0


class Waiting(NamedTuple):
    """A wait that people can follow.

    Args:
        patience: What to wait with.
        got: To be called with the handle when there are leases; says so to whoever saw the wait,
            and what will happen to them by itself.
        warn: To be called with a line for people, which is not to stand behind the live line.
    """

    patience: Patience
    got: Callable[[Handle], None]
    warn: Callable[[str], None]


@contextmanager
def reported(
    request: Request, wait_seconds: float | None, interrupts: Sequence[Interrupt], *, quiet: bool
) -> Iterator[Waiting]:
    """Wait inside with what this gives; the progress is shown meanwhile.

    Args:
        request: What is waited for.
        wait_seconds: For how long at most; None for no limit.
        interrupts: What ends the wait.
        quiet: Show nothing, and so never wake up to do so.
    """
    reporter = _Reporter(request, wait_seconds)
    patience = Patience(
        wait_seconds=wait_seconds,
        interrupts=tuple(interrupts),
        report=None if quiet else reporter.report,
        warn=reporter.warn,
        report_seconds=TERMINAL_REPORT_SECONDS if reporter.is_live else LOG_REPORT_SECONDS,
    )
    try:
        yield Waiting(patience, _say_nothing if quiet else reporter.got, reporter.warn)
    finally:
        reporter.clear()


def _say_nothing(handle: Handle) -> None:
    """Of what was had, to whoever wants to hear nothing."""


class _Reporter:
    """Progress of one wait: a live line on a terminal, else a line at the start and one a minute.

    Args:
        request: What is waited for.
        wait_seconds: For how long at most; None for no limit.
    """

    def __init__(self, request: Request, wait_seconds: float | None) -> None:
        self._request = request
        self._wait_seconds = wait_seconds
        self._since: float | None = None  # when the wait began that was shown
        self.is_live = sys.stderr.isatty() and _obeys_escapes()
        self._shown = False

    def clear(self) -> None:
        """Take the live line away."""
        if self._shown:
            _draw("")
            self._shown = False

    def got(self, handle: Handle) -> None:
        """Say that the wait is over, and what will happen to the leases by itself."""
        said = []
        if self._since is not None:
            waited = format_duration(boottime_seconds() - self._since)
            said.append(f"got {_named(handle.names)} after {waited}")
            self._since = None
        after = handle.request.release_after_seconds
        if after is not None and handle.names:
            subject = "to go back" if said else f"{_named(handle.names)} will go back"
            said.append(f"{subject} {when_due(after)} (--release-after)")
        self.clear()
        if said:
            note("; ".join(said))

    def warn(self, text: str) -> None:
        """Tell people something, where the live line was: whatever follows may be another's."""
        self.clear()
        note(text)

    def report(self, progress: Progress) -> None:
        if self._since is None:
            self._since = boottime_seconds() - progress.waited_seconds
        parts = self._parts(progress)
        if not self.is_live:
            note(", ".join(parts))
            return
        from leasectl.cli.waiting_line import fit_line

        with contextlib.suppress(OSError):  # the terminal is gone
            columns = os.get_terminal_size(2).columns or 80
            line = fit_line(parts, either(self._request.types), max(20, columns - 1))
            self._shown = _draw(line)

    def _parts(self, progress: Progress) -> list[str]:
        types = either(self._request.types)
        waited = f"waited {format_duration(progress.waited_seconds)}"
        if progress.position is None:
            parts = [f"waiting for {types}: {waited}"]
        else:
            parts = [
                f"waiting for {types}: place {progress.position}",
                f"{progress.held}/{progress.capacity} held",
                waited,
            ]
            rule = _held_back_by(self._request, progress)
            if rule is not None and progress.held < progress.capacity:
                parts.append(rule)
        if self._wait_seconds is not None:
            left = max(0.0, self._wait_seconds - progress.waited_seconds)
            parts.append(f"gives up in {format_duration(math.ceil(left))}")
        if progress.longest_holder is not None:
            held = format_duration(progress.longest_held_seconds)
            parts.append(f"longest {held} by {progress.longest_holder}")
        return parts


def _obeys_escapes() -> bool:
    from leasectl.cli.terminal import obeys_escapes

    return obeys_escapes(2)


def _held_back_by(request: Request, progress: Progress) -> str | None:
    """Which rule keeps a request from what is free."""
    if progress.position != 1:
        return "first come, first served"
    if request.name is not None:
        return f"only {request.name} will do"
    if request.count > 1:
        return f"all {request.count} at once, or none"
    return None


def _named(names: Sequence[str]) -> str:
    return listed(names) if names else "nothing"


def warn_of_endless_wait(wait_seconds: float | None, *, quiet: bool) -> None:
    """Tell whoever can do without a lease that without a limit it may be waited for all the same.

    Args:
        wait_seconds: For how long at most; None for no limit.
        quiet: Say nothing.
    """
    if wait_seconds is None and not quiet:
        note(
            "--optional without --wait may wait for ever; to go on without a lease, set -w, like 1h"
        )


def _draw(line: str) -> bool:
    """Draw the terminal's last line anew, if that is ours; return whether it was.

    In the background it is the prompt's, or another command's. A terminal that we aren't controlled
    by has no foreground.
    """
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(2) != os.getpgrp():
            return False
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
    return True


def interrupts(trap: SignalTrap, guard: Process | None) -> list[Interrupt]:
    """What ends a wait: a signal, the guard's death, and that nobody reads our answer any more."""
    found = [Interrupt(trap.fd, READABLE, trap.check)]
    if guard is not None:
        pidfd = open_pidfd(guard)
        if pidfd is None:
            raise Cancelled(f"guard {guard.pid} has ended")
        found.append(Interrupt(pidfd, READABLE, lambda: _raise_guard_ended(guard)))
    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise LeaseError("can't write to stdout: it is closed, so nobody would learn of the lease")
    # No event is asked for: a pipe without a reader reports an error all the same.
    return [*found, Interrupt(1, 0, _raise_nobody_reads)]


def sleep_jitter(longest_seconds: float, interrupts: Sequence[Interrupt], *, quiet: bool) -> None:
    """Sleep a random time of up to so many seconds, and say for how long."""
    if longest_seconds > 0:
        import random

        seconds = random.uniform(0, longest_seconds)
        if seconds >= 1 and not quiet:
            longest = format_duration(longest_seconds)
            note(f"asks for a lease in {format_duration(seconds)} (--jitter {longest})")
        pause(seconds, interrupts)


def pause(seconds: float, interrupts: Sequence[Interrupt]) -> None:
    """Sleep, unless something ends it."""
    until = boottime_seconds() + seconds
    sleep(wake_fds=(), interrupts=interrupts, until=until, now=boottime_seconds)


def _raise_guard_ended(guard: Process) -> None:
    raise Cancelled(f"guard {guard.pid} ended while the request waited")


def _raise_nobody_reads() -> None:
    raise LeaseError("nobody reads the answer any more (stdout is closed); gave up waiting")
