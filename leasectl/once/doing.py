"""Return a kept result, or wait for the lease and do the work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from leasectl.backends.contract import Patience
from leasectl.errors import (
    BackendUnreachable,
    Interrupted,
    LeaseError,
    LeaseLost,
    NotFound,
)
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.once.command import WorkCommand
from leasectl.once.queue import WorkQueue
from leasectl.once.results import Asked, Kept, Outcome, terms_of
from leasectl.once.under_lease import UnderLease
from leasectl.run.child import Child, Ending, find_command
from leasectl.run.supervision import READ, Supervisor
from leasectl.run.tree import adopting_orphans
from leasectl.system.callers import CallerEnded
from leasectl.system.poll import Interrupt, check
from leasectl.system.signals import SignalDescriptor

# A runner removes expired results of others at its end, unless the server is slow.
_TIDY_SECONDS = 1.0


class Once(WorkQueue):
    """Gets one work done: by another waiter, or else by our command.

    Args: see `WorkQueue`.
    """

    def __init__(self, service: Service, asked: Asked, *, warn: Callable[[str], None]) -> None:
        super().__init__(service, asked, warn=warn)
        self._signals = SignalDescriptor(READ)
        self._supervisor = Supervisor(asked.plan, self._signals, warn=warn, clock=self._clock)
        self._has_run = False
        self._has_begun = False  # the command, under the lease that was acquired last
        self._is_tried_again = False  # that command failed, and the next waiter runs it

    def result(self, patience: Patience) -> Outcome:
        """Return the result of the work, or how it has failed.

        Args:
            patience: How long to wait for those who do it.

        Raises:
            NoLease: It wasn't done in time.
            LeaseLost: We did it, and the lease was lost meanwhile; nothing was recorded. A lease
                that is lost before the command begins is acquired again.
            CommandNotFound, CannotExecute: There is no result, and we couldn't do the work.
            Interrupted: A signal has asked this process to end.
            LeaseError: The result can't be kept, or too many runners have died.
        """
        try:
            with adopting_orphans():  # in case a warden is killed
                found = self._result(patience)
        except BackendUnreachable:
            raise  # another request would take as long again; the keeper removes the pool
        except BaseException:
            self._pool.leave()
            raise
        self._pool.leave()
        if self._has_run:
            with self._service.limited(self._clock.elapsed() + _TIDY_SECONDS):
                self._results.tidy()
        if found.error is not None:
            raise found.error
        return found

    def _result(self, patience: Patience) -> Outcome:
        path: str | None = None
        give_up_at = patience.until(self._clock.elapsed())
        while True:
            found = self._look(give_up_at)
            if found is not None:
                return found
            if path is None:
                search_path = self._asked.environ.get("PATH", os.defpath)
                path = find_command(self._asked.plan.name, search_path)
            handle = self._acquire(patience, give_up_at)
            self._has_begun = self._is_tried_again = False
            began = self._clock.elapsed()
            try:
                found = self._under(handle, path, patience)
            except LeaseLost:
                if self._has_begun:
                    raise
                self._warn(self._of_work("lost its lease before the command began; waiting again"))
                continue
            if found is None:
                continue
            if not self._is_tried_again:
                return found
            if give_up_at is not None:
                give_up_at += self._clock.elapsed() - began  # --wait doesn't bound the run
            return self._follow(found, patience, give_up_at)

    # ---- others' runs after our own has failed

    def _follow(self, own: Outcome, patience: Patience, give_up_at: float | None) -> Outcome:
        """Wait for the result of the waiters that run the command after us.

        We queue again, behind them, as a follower. Whenever it is our turn, there is a result, or
        no waiter is left who could get one, or others have come since, behind whom we queue.

        Args:
            own: How our own run has failed: the outcome, if no other run succeeds.
            patience: How to wait.
            give_up_at: When the wait ends, on the elapsed clock; None for never.
        """
        if give_up_at is not None and self._clock.elapsed() >= give_up_at:
            return own
        failure = own.error or (own.ending and own.ending.describe())
        self._warn(self._of_work(f"our run failed ({failure}); waiting for the next caller's run"))
        try:
            while True:
                with self._service.limited(give_up_at):
                    found = self._usable()
                if found is not None:
                    return found
                try:
                    handle = self._queue(self._asked.following_request, patience, give_up_at)
                except NotFound:  # the last waiter has removed the pool
                    with self._service.limited(give_up_at):
                        return self._usable() or own
                if not self._has_more_to_come(handle):
                    return own
        except CallerEnded:
            raise
        except LeaseError as error:
            self._warn(f"{error}; exiting with the result of our own run")
            return own

    def _has_more_to_come(self, handle: Handle) -> bool:
        """Return whether a follower finds a result, or another runner may produce one."""
        with self._leased(handle) as leased:
            return self._kept()[1] is not None or leased.pass_on()

    # ---- what waiting takes

    def _interrupt(self) -> tuple[Interrupt, ...]:
        return (self._supervisor.interrupt(),)

    def _check(self) -> None:
        self._supervisor.check()

    def _verifies(self, verify: str) -> bool:
        shell = ("/bin/sh", "-c", verify)
        stdin = os.open(os.devnull, os.O_RDONLY)
        child = Child(shell[0], shell, self._asked.environ, self._signals, stdin=stdin, stdout=2)
        os.close(stdin)
        ending = self._supervisor.supervise(child)
        if self._supervisor.asked_to_end:
            raise Interrupted(ending.signum or signal.SIGTERM)
        return ending == Ending(0)

    def _under(self, handle: Handle, path: str, patience: Patience) -> Outcome | None:
        """Do the work under the lease, or share an outcome; None to look again without it."""
        with self._leased(handle) as leased:
            kept, found = self._kept()
            if found is not None:
                return None if self._asked.verify is not None else found
            check(patience.interrupts)  # a lease that was free was granted without a look at them
            return leased.share_failure() or self._do(leased, handle, path, patience, bad=kept)

    def _do(
        self,
        leased: UnderLease,
        handle: Handle,
        path: str,
        patience: Patience,
        *,
        bad: Kept | None,
    ) -> Outcome | None:
        found = leased.begin(bad)
        if found is None:
            return None
        self._has_run = True
        command = WorkCommand(
            self._service,
            self._asked,
            handle,
            supervisor=self._supervisor,
            signals=self._signals,
            clock=self._clock,
        )
        try:
            came = command.run(
                path,
                terms_of(found, self._asked),
                attempt=len(found.failures) + 1,
                wait_seconds=patience.wait_seconds,
            )
            is_to_end = self._supervisor.asked_to_end
            if came.content is not None and self._supervisor.asked_by is not None:
                # Its output may be incomplete.
                self._warn(f"{self._asked.plan.name} was signalled to end; its result isn't kept")
                raise Interrupted(self._supervisor.asked_by)
            outcome = leased.record(found, came, command, is_to_end=is_to_end)
            self._is_tried_again = leased.is_tried_again
            return outcome
        except BaseException as error:
            self._has_begun = command.has_begun
            command.kill_rest()
            if isinstance(error, Interrupted):
                leased.stop(found)
            raise
        finally:
            command.let_go()
