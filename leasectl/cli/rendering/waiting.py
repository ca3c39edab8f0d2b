"""Wait: show progress, heed signals, notice that stdout was closed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leasectl.backends.contract import Patience, Progress
from leasectl.backends.kinds import pools_of
from leasectl.cli.rendering.output import note, output_interrupts, when_due
from leasectl.errors import LeaseError, NoLease
from leasectl.model import Handle, Process, Request
from leasectl.system.callers import watch_guard
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import Interrupt, is_writable, pause
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import draw_between, format_duration
from leasectl.text.wording import listed

if TYPE_CHECKING:
    from leasectl.cli.rendering.waiting_facts import Opened, WaitingFacts

TERMINAL_REPORT_SECONDS = 1.0
LOG_REPORT_SECONDS = 60.0
# Long enough to be read.
_TURN_SECONDS = 4.0


class WaitOptions(NamedTuple):
    """How a command waits for its lease, as its options say."""

    wait_seconds: float | None = None
    connect_seconds: float | None = None
    conflict_code: int | None = None
    optional: bool = False
    jitter_seconds: float = 0.0
    start_jitter_seconds: float = 0.0
    quiet: bool = False

    @classmethod
    def pop(cls, given: dict[str, Any]) -> WaitOptions:
        """Take these options out of all that a command was given; it may have only some."""
        return cls(**{each: given.pop(each) for each in cls._fields if each in given})

    def set_exit_code(self, error: LeaseError) -> None:
        """Give an error that no lease was granted in time the exit code that was asked for."""
        if isinstance(error, NoLease) and self.conflict_code is not None:
            error.exit_code = self.conflict_code

    def tell(self, text: str) -> None:
        """Tell people something, unless they want to hear of errors only."""
        if not self.quiet:
            note(text)

    def warn_of_endless_wait(self) -> None:
        """Warn that an optional lease without a limit may be waited for without end."""
        if self.optional and self.wait_seconds is None:
            self.tell(
                "--optional without --wait may wait for ever; set -w, like 1h, to continue without "
                "a lease"
            )

    def sleep_jitter(self, interrupts: Sequence[Interrupt]) -> None:
        """Sleep a random time of up to --jitter, and say for how long."""
        if self.jitter_seconds > 0:
            seconds = draw_between(0.0, self.jitter_seconds)
            if seconds >= 1:
                longest = format_duration(self.jitter_seconds)
                self.tell(f"asks for a lease in {format_duration(seconds)} (--jitter {longest})")
            pause(seconds, interrupts)


class Waiting:
    """A wait that is shown to people, in a live line on a terminal, else a line now and then.

    A context manager; the line is gone at its end.

    Args:
        request: What is waited for.
        options: How long, and whether to show nothing, and so never wake up to do so.
        interrupts: What ends the wait.
        service: As `WaitingFacts` has it.

    Attributes:
        patience: What to wait with.
        line: Shows the progress. Warnings go through it, or they would follow the live line.
    """

    def __init__(
        self,
        request: Request,
        options: WaitOptions,
        interrupts: Sequence[Interrupt],
        service: Opened,
    ) -> None:
        self._request = request
        self._options = options
        self._service = service
        self._told: WaitingFacts | None = None
        self._since: float | None = None  # when the wait began that was shown
        self.line = LiveLine()
        self.patience = Patience(
            wait_seconds=options.wait_seconds,
            connect_seconds=options.connect_seconds,
            interrupts=tuple(interrupts),
            report=None if options.quiet else self._report,
            warn=self.line.warn,
            report_seconds=self.line.seconds,
        )

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.clear()

    def got(self, handle: Handle, start_delay_seconds: float) -> None:
        """Say that the wait is over, and what will happen to the leases by itself.

        Args:
            handle: It has leases now.
            start_delay_seconds: For how long it will be held back.
        """
        if self._options.quiet:
            return
        said, is_named = [], self._since is not None
        if self._since is not None:
            waited = format_duration(boottime_seconds() - self._since)
            said.append(f"got {_named(handle.names)} after {waited}")
            self._since = None
        if handle.request.other_types and handle.granted_type:
            types = " or ".join(handle.request.types)
            said.append(
                f"the lease is of {handle.granted_type}; either of {types} was asked for "
                "(for one of each: --each)"
            )
        if start_delay_seconds >= 1 and handle.names:
            start = f"start {when_due(start_delay_seconds)} (--start-jitter)"
            said.append(start if is_named else f"{_named(handle.names)}: {start}")
            is_named = True
        after = handle.request.release_after_seconds
        if after is not None and handle.names:
            subject = "to be released" if is_named else f"{_named(handle.names)} will be released"
            said.append(f"{subject} {when_due(start_delay_seconds + after)} (--release-after)")
        self.line.clear()
        if said:
            note("; ".join(said))

    def _report(self, progress: Progress) -> None:
        if self._since is None:
            self._since = boottime_seconds() - progress.waited_seconds
        if self._told is None:
            from leasectl.cli.rendering.waiting_facts import WaitingFacts

            self._told = WaitingFacts(self._request, self._options.wait_seconds, self._service)
        parts = self._told.tell(progress)
        types = pools_of(self._request)
        turn = int(progress.waited_seconds / _TURN_SECONDS)

        def fitted(width: int) -> str:
            from leasectl.cli.rendering.waiting_line import fit_line

            return fit_line(parts, types, width, turn=turn)

        self.line.say(", ".join(each.text for each in parts), fitted)


class LiveLine:
    """The last line of a terminal, drawn anew each time; elsewhere a line more each time.

    In the background of a terminal the last line is the prompt's, or another command's: there it is
    a line more, as seldom as in a log.

    Attributes:
        is_live: It is drawn anew.
        seconds: How often to say how things are.
    """

    def __init__(self) -> None:
        self.is_live = False
        if sys.stderr.isatty():
            from leasectl.cli.rendering.table import obeys_escapes

            self.is_live = obeys_escapes(2)
        self.seconds = TERMINAL_REPORT_SECONDS if self.is_live else LOG_REPORT_SECONDS
        self._is_shown = False
        self._said_at: float | None = None

    def say(self, text: str, fitted: Callable[[int], str]) -> None:
        """Say how things are.

        Args:
            text: All that there is to say.
            fitted: What of it fits into so many columns.
        """
        if _is_in_background():
            self._is_shown = False
            if self._is_due() and not _stops_writers():
                self._said_at = boottime_seconds()
                note(text)
        elif self.is_live:
            self._said_at = boottime_seconds()
            self._draw(fitted)
        else:
            note(text)

    def _is_due(self) -> bool:
        """Whether a line more is; where it isn't drawn anew, each time that something is said."""
        if self._said_at is None or not self.is_live:
            return True
        return boottime_seconds() >= self._said_at + LOG_REPORT_SECONDS

    def _draw(self, fitted: Callable[[int], str]) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            columns = os.get_terminal_size(2).columns or 80
            self._is_shown = draw(fitted(max(20, columns - 1)))

    def clear(self) -> None:
        """Take it away."""
        if self._is_shown:
            if not _is_in_background():
                draw("")
            self._is_shown = False

    def warn(self, text: str) -> None:
        """Tell people something, where the line was: whatever follows may be another's."""
        self.clear()
        note(text)


def _named(names: Sequence[str]) -> str:
    return listed(names) if names else "nothing"


def draw(line: str) -> bool:
    """Draw the terminal's last line anew; return whether it was."""
    if not is_writable(2, 0):  # it was stopped by Ctrl-S
        return False
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
    return True


def _is_in_background() -> bool:
    """Tell whether stderr is our terminal, and another has it now.

    A terminal that we aren't controlled by has no foreground.
    """
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(2) != os.getpgrp()
    return False


def _stops_writers() -> bool:
    """Tell whether the terminal stops who writes there from its background: stty tostop."""
    import termios

    with contextlib.suppress(termios.error):
        return bool(termios.tcgetattr(2)[3] & termios.TOSTOP)
    return False


def interrupts(trap: SignalTrap, guard: Process | None) -> list[Interrupt]:
    """What ends a wait: a signal, the end of the guard, and a closed stdout."""
    found = watch_guard(guard)
    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise LeaseError("can't write to stdout: it is closed")
    signalled, unread = output_interrupts(trap, _raise_nobody_reads)
    return [signalled, *found, unread]


def _raise_nobody_reads() -> None:
    raise LeaseError("stdout was closed; stopped waiting")
