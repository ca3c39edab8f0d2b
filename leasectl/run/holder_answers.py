"""Answer reclaims beside the command.

`run` renews its own lease, so it is who sees on a server what is noted there. What lives there is
asked and answered by a thread; so is what a command decides, wherever the lease is. On the embedded
pool the keeper sees marks and answers as the request says.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import Context, kind_of_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.run.child import Child
from leasectl.system.request_threads import RequestThreads

if TYPE_CHECKING:
    from leasectl.engines.notes import Note
    from leasectl.leases.marks import Answered
    from leasectl.system.signals import SignalDescriptor

# Starts the command that decides whether names can be given back.
Ask = Callable[[Sequence[str]], Child]

_TRY_AGAIN_SECONDS = 2.0


class _Job(NamedTuple):
    """What a thread is to do.

    Args:
        target: Of whose marks.
        said: What was decided; None to look, and to answer what needs no deciding by a command.
    """

    target: ReleaseTarget
    said: tuple[tuple[str, Answered], ...] | None = None


class HolderAnswers:
    """Answers for one handle, as long as its command runs.

    Args:
        service: Where the lease comes from.
        handle: Its handle.
        ask: Starts a command that decides; None where its request does.
    """

    def __init__(self, service: Service, handle: Handle, *, ask: Ask | None) -> None:
        self._service = service
        self._handle = handle
        self._ask = ask
        self._clock = service.clock
        self._is_remote = kind_of_handle(handle).remote
        self._threads: RequestThreads[str, _Job, tuple[str, ...]] = RequestThreads(
            lambda _: self._begin(), clock=service.clock
        )
        self._asked: tuple[str, ...] = ()
        self._child: Child | None = None
        self._has_seen = False  # a note at one of the leases
        self._looks_again = False
        self._look_at: float | None = None

    def heed(self, notes: Sequence[Note] | None) -> None:
        """Told what is noted at the lease; None when it may have changed in our own records."""
        if notes is None:
            if self._ask is not None and not self._is_remote:
                self._look_at = self._clock.elapsed()
            return
        if not notes and not self._has_seen:
            return
        from leasectl.leases.marks import needs_answer
        from leasectl.state.uses import Uses

        seen = Uses(self._service.state).marks(self._handle)
        self._has_seen = bool(notes or seen)
        is_ours = self._ask is not None or self._handle.request.on_reclaim != "answer"
        if needs_answer(notes, seen, self._clock.elapsed(), is_answered_here=is_ours):
            self._look_at = self._clock.elapsed()

    # ---- called by the supervisor

    def fds(self) -> list[int]:
        """Implements `Beside`."""
        child = None if self._child is None else self._child.end_fd
        return [fd for fd in (self._threads.fd, child) if fd is not None]

    def until(self, now: float) -> float | None:
        """Implements `Beside`."""
        return self._look_at

    def look(self, woken: Collection[int]) -> None:
        """Implements `Beside`."""
        try:
            self._look(woken)
        except BaseException:
            self._look_at = self._clock.elapsed() + _TRY_AGAIN_SECONDS  # to ask, or answer, again
            raise

    def _look(self, woken: Collection[int]) -> None:
        if self._child is not None and self._child.end_fd in woken:
            self._end_asking(self._child)
        for outcome in self._threads.outcomes():
            self._take(outcome.value)
        if self._look_at is not None and self._clock.elapsed() >= self._look_at:
            self._look_at = None
            self._send(None)

    def close(self) -> None:
        """Answer no more; a command that decides is ended."""
        if self._child is not None:
            _end(self._child)
        self._threads.close()

    # ---- in threads

    def _send(self, said: Mapping[str, Answered] | None) -> None:
        is_busy = self._child is not None or self._threads.under_way
        if is_busy and said is None:
            self._looks_again = True
            return
        job = _Job(whole(self._handle), None if said is None else tuple(said.items()))
        self._threads.send("", job)

    def _begin(self) -> Callable[[_Job], tuple[str, ...]]:
        context = self._service.context
        context = Context(context.url, context.settings, context.caller, clock=self._clock)
        service = Service(self._service.state.open_again(), context)
        return lambda job: self._answer(service, job)

    def _answer(self, service: Service, job: _Job) -> tuple[str, ...]:
        """Answer what can be; returns the names that a command is to decide about."""
        from leasectl.leases.marks import answer_for_holder

        undecided: list[str] = []
        said = dict(job.said or ())

        def decide(names: Sequence[str]) -> Mapping[str, Answered]:
            undecided.extend(name for name in names if name not in said)
            return said

        has_command = self._ask is not None
        answer_for_holder(service, job.target, decide if has_command else None)
        return tuple(undecided)

    def _take(self, names: tuple[str, ...] | None) -> None:
        """Go on with what a thread has found."""
        looks_again, self._looks_again = self._looks_again, False
        if names is None:  # it failed
            self._look_at = self._clock.elapsed() + _TRY_AGAIN_SECONDS
        elif names and self._ask is not None:
            self._asked = names
            self._child = self._ask(names)
            self._child.start()
        elif looks_again:
            self._look_at = self._clock.elapsed()

    def _end_asking(self, child: Child) -> None:
        self._child = None
        ending = child.reap()
        child.let_go()
        answer: Answered = "ready" if ending.code == 0 else "keep"
        self._send(dict.fromkeys(self._asked, answer))


def start_asking(
    command: str, names: Sequence[str], environ: Mapping[str, str], signals: SignalDescriptor
) -> Child:
    """Fork the command that decides whether names can be given back; it isn't started yet.

    It ends with this process, reads nothing, and writes to stderr.

    Args:
        command: A shell command, which gets the names as its arguments.
        names: The names that are wanted back.
        environ: Its environment.
        signals: This process's signals, as for `Child`.
    """
    shell = ("/bin/sh", "-c", f"exec </dev/null\n{command}", "sh", *names)
    return Child(shell[0], shell, environ, signals, ends_with_us=True, stdout=2)


def _end(child: Child) -> None:
    child.signal(signal.SIGKILL)
    child.reap()
    child.let_go()
