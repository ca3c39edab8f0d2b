"""Acquire, run, release; repeat if wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from leasectl.backends.contract import Patience
from leasectl.errors import (
    LeaseError,
    LeaseLost,
    spares_optional,
)
from leasectl.leases.acquire import acquire
from leasectl.leases.properties import property_variables
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.run.child import CannotExecute, Child, CommandNotFound, Ending, become, find_command
from leasectl.run.holder_answers import Ask, start_asking
from leasectl.run.leased_command import give_back, run_leased
from leasectl.run.plan import Plan
from leasectl.run.supervision import READ, Supervisor
from leasectl.run.tree import adopting_orphans
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, check
from leasectl.system.signals import SignalDescriptor
from leasectl.text.durations import draw_between
from leasectl.text.wording import followed_by

# Errors of the attempt itself, so that the exit status of the attempt before no longer counts.
_OF_THIS_ATTEMPT = (LeaseLost, CommandNotFound, CannotExecute)


class Runner:
    """Carries out a `Plan`.

    Args:
        open_service: Opens where leases come from. Called when the first is needed, so that an
            optional one may also fail there.
        plan: What to do.
        before_acquire: Called before each acquisition with the descriptors that interrupt it;
            sleeps the jitter.
        warn: Called with a line for people.
        clock: Where times come from.
    """

    def __init__(
        self,
        open_service: Callable[[], Service],
        plan: Plan,
        *,
        before_acquire: Callable[[Sequence[Interrupt]], None],
        warn: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._open_service = open_service
        self._opened: Service | None = None
        self._plan = plan
        self._before_acquire = before_acquire
        self._warn = warn
        self._clock = clock or Clock()
        self._signals = SignalDescriptor(READ)
        self._supervisor = Supervisor(plan, self._signals, warn=warn, clock=self._clock)

    def run(
        self, patience: Patience, *, got: Callable[[Handle, float], None] = lambda _, __: None
    ) -> Ending:
        """Run the command, again if the plan says so.

        Args:
            patience: How long to wait for each lease.
            got: Called with the handle of each, and for how many seconds it is held back.

        Returns:
            How the last run of the command ended.

        Raises:
            CommandNotFound, CannotExecute: Before any lease is asked for.
            LeaseLost: The lease was lost, and the command has ended since.
            Interrupted: A signal arrived while there was no command to forward it to.
            LeaseError: No lease was had for the first attempt. Without one for a further attempt,
                what counts is how the command ended before.
        """
        with adopting_orphans() as is_allowed:
            if not is_allowed:
                self._warn(
                    "the kernel doesn't allow PR_SET_CHILD_SUBREAPER, so run can't follow "
                    "orphaned processes"
                )
            return self._run(patience, got)

    def _run(self, patience: Patience, got: Callable[[Handle, float], None]) -> Ending:
        plan = self._plan
        path = find_command(plan.name, plan.environ.get("PATH", os.defpath))
        ending: Ending | None = None
        for attempt in range(1, plan.attempts + 1):
            try:
                ending = self._attempt(path, attempt, patience, got)
            except LeaseError as error:
                if ending is None or isinstance(error, _OF_THIS_ATTEMPT):
                    raise
                after = f"no further attempt; exiting like the last run of {plan.name}"
                self._warn(followed_by(error, after))
                break
            if ending.code not in plan.retry_on or self._supervisor.asked_to_end:
                break
            if attempt == plan.attempts:
                last = f"attempt {attempt} of {attempt} was the last"
                self._warn(f"{plan.name} exited with {ending.code}; {last}")
                break
            self._warn(
                f"{plan.name} exited with {ending.code}; "
                f"attempt {attempt + 1} of {plan.attempts} follows"
            )
            if not self._prepare_retry(attempt):
                break
        assert ending is not None
        return ending

    def _attempt(
        self, path: str, attempt: int, patience: Patience, got: Callable[[Handle, float], None]
    ) -> Ending:
        start_delay = draw_between(0.0, self._plan.start_jitter_seconds)
        handle = self._acquire(patience, start_delay)
        if handle is None:
            check(patience.interrupts)
            return self._run_without(path, attempt)
        child: Child | None = None
        try:
            got(handle, start_delay)
            check(patience.interrupts)  # a lease that was free was granted without a look at them
            names_path = self._service.state.names_path(handle.id)
            properties = self._properties(handle)
            environ = self._plan.environ_under(handle, names_path, attempt, properties)
            child = self._fork(path, environ)
            return run_leased(
                self._service,
                handle,
                self._supervisor,
                child,
                self._plan.name,
                wait_seconds=patience.wait_seconds,
                start_delay_seconds=start_delay,
                ends=patience.interrupts,
                ask=self._ask(environ),
            )
        except LeaseError as error:
            has_begun = child is not None and child.has_begun
            if has_begun or isinstance(error, _OF_THIS_ATTEMPT) or not self._does_without(error):
                raise
        finally:
            self._supervisor.settle(child)
            give_back(self._service, handle, warn=self._warn)
        return self._run_without(path, attempt)

    def _run_without(self, path: str, attempt: int) -> Ending:
        environ = self._plan.environ_of(attempt)
        try:
            child = self._fork(path, environ)
        except LeaseError as error:
            if not self._plan.optional:
                raise
            # Without a lease to look after, the command doesn't need a parent that can follow it.
            in_place = (
                f"leasectl run executes {self._plan.name} in its own place, without following it"
            )
            self._warn(followed_by(error, in_place))
            become(path, self._plan.command, environ, self._signals)
        return self._supervisor.supervise(child)

    def _does_without(self, error: LeaseError) -> bool:
        """Tell whether the command runs without a lease after that error, and say so."""
        if not self._plan.optional or not spares_optional(error):
            return False
        self._warn(f"continuing without a lease (--optional): {error}")
        return True

    def _acquire(self, patience: Patience, start_delay: float) -> Handle | None:
        interrupt = self._supervisor.interrupt()
        try:
            self._supervisor.check()
            self._before_acquire([interrupt])
            with self._service.state.lock_limit.within_wait(patience.wait_seconds):
                return acquire(
                    self._service,
                    self._plan.request,
                    patience=patience._replace(interrupts=(*patience.interrupts, interrupt)),
                    followed=True,
                    start_delay_seconds=start_delay,
                )
        except LeaseError as error:
            if not self._does_without(error):
                raise
            return None

    def _prepare_retry(self, attempt: int) -> bool:
        """Run what is to be run before a further attempt; tell whether there is to be one."""
        if self._plan.before_retry is None:
            return True
        shell = ("/bin/sh", "-c", self._plan.before_retry)
        child = Child(shell[0], shell, self._plan.environ_of(attempt), self._signals)
        ending = self._supervisor.supervise(child)
        if self._supervisor.asked_by is not None:
            self._signals.interrupt(self._supervisor.asked_by)
        if ending.code != 0:
            self._warn(f"--before-retry failed ({ending.describe()}); no further attempt")
        return ending.code == 0

    def _ask(self, environ: dict[str, str]) -> Ask | None:
        """What starts the command that decides whether names can be given back."""
        command = self._plan.on_reclaim
        if command is None:
            return None
        return lambda names: start_asking(command, names, environ, self._signals)

    def _properties(self, handle: Handle) -> Mapping[str, str]:
        """What the leased resources are, for the command, which also runs without."""
        found = property_variables(self._service, handle)
        for each in found.warnings:
            self._warn(each)
        return found.values

    def _fork(self, path: str, environ: dict[str, str]) -> Child:
        return Child(path, self._plan.command, environ, self._signals)

    @property
    def _service(self) -> Service:
        if self._opened is None:
            self._opened = self._open_service()
        return self._opened
