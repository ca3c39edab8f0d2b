"""Queue for a work's lease, and look at the result that others may have produced meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from leasectl.backends.contract import Patience
from leasectl.errors import Cancelled, NoLease, NotFound
from leasectl.leases.acquire import acquire
from leasectl.leases.on_demand import PoolOnDemand, is_needed
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.once.results import Asked, Kept, Outcome, Results, Round, terms_text
from leasectl.once.under_lease import UnderLease
from leasectl.once.work import refuse_waiting_for_itself
from leasectl.run.leased_command import give_back
from leasectl.system.callers import CallerEnded
from leasectl.system.poll import Interrupt, sleep

_MAKE_AGAIN_SECONDS = 0.05


class WorkQueue:
    """The queue for one work.

    Args:
        service: Where the work's lease comes from, and its result is kept.
        asked: The work, and how to do it.
        warn: Called with a line for people.
    """

    def __init__(
        self,
        service: Service,
        asked: Asked,
        *,
        warn: Callable[[str], None],
    ) -> None:
        self._service = service
        self._asked = asked
        self._warn = warn
        self._clock = service.clock
        self._results = Results(service.values)
        self._pool = PoolOnDemand(service, asked.work.pool_type)
        self._bad: Kept | None = None
        self._has_announced_terms = False
        self._over: Round | None = None

    def _interrupt(self) -> tuple[Interrupt, ...]:
        """Return what ends a wait beside the caller's patience."""
        return ()

    def _check(self) -> None:
        """Raise the error of such an interrupt, if it has come."""

    def _verifies(self, verify: str) -> bool:
        """Return whether the verifying command succeeds."""
        raise NotImplementedError

    # ---- a result that is there

    def _kept(self) -> tuple[Kept | None, Outcome | None]:
        """Return the result that is kept, and the outcome if it can be used as far as is known."""
        kept = self._results.kept(self._asked.work)
        if kept is None or (self._bad is not None and kept.version == self._bad.version):
            return kept, None
        content = self._results.content(kept)
        if content is None:
            self._bad = kept
            return kept, None
        return kept, Outcome(content, kept)

    def _usable(self) -> Outcome | None:
        """Return a kept result that can be used, as far as the verifying command can tell."""
        kept, found = self._kept()
        verify = self._asked.verify
        if kept is None or found is None or verify is None or self._verifies(verify):
            return found
        self._warn(f"--verify failed: the result of work {kept.work.title} is forgotten")
        self._bad = kept
        return None

    def _look(self, give_up_at: float | None) -> Outcome | None:
        """Return a result that can be used; else check that the work can be waited for."""
        with self._service.limited(give_up_at):
            found = self._usable()
            if found is None:
                refuse_waiting_for_itself(self._service, self._asked.work)
                self._tell_terms()
        return found

    # ---- the lease

    def _tell_terms(self) -> None:
        """Warn a caller that joins a round with other retry rules than its own."""
        terms = self._results.round(self._asked.work).terms
        if terms is None or terms == self._asked.terms or self._has_announced_terms:
            return
        if not is_needed(self._service.pools, self._asked.work.pool_type):
            return
        self._has_announced_terms = True
        self._warn(
            f"work {self._asked.work.title} is running with other options, which apply until its "
            f"end: {terms_text(terms)}"
        )

    def _acquire(self, patience: Patience, give_up_at: float | None) -> Handle:
        """Acquire the lease of the work, and create its pool if it is missing."""
        while True:
            try:
                return self._queue(self._asked.request, patience, give_up_at)
            except NotFound:
                with self._service.limited(give_up_at):
                    over = self._results.round(self._asked.work)
                    has_made = self._pool.make()
                if has_made:
                    self._over = over
                    continue
                if give_up_at is not None and self._clock.elapsed() >= give_up_at:
                    raise NoLease(self._not_in_time()) from None
            sleep(
                interrupts=self._interrupt(),
                until=self._clock.elapsed() + _MAKE_AGAIN_SECONDS,
                now=self._clock.elapsed,
            )

    def _queue(self, request: Request, patience: Patience, give_up_at: float | None) -> Handle:
        """Acquire the lease of the work; NotFound without its pool."""
        self._check()
        left = None if give_up_at is None else max(0.0, give_up_at - self._clock.elapsed())
        interrupts = (*patience.interrupts, *self._interrupt())
        try:
            with self._service.state.lock_limit.within_wait(left):
                self._pool.need()
                return acquire(
                    self._service,
                    request,
                    patience=patience._replace(wait_seconds=left, interrupts=interrupts),
                    followed=True,
                    called=f"once-{self._asked.work.id}",
                )
        except NoLease as error:
            if type(error) is NoLease:
                error.args = (self._not_in_time(),)
            elif isinstance(error, Cancelled) and not isinstance(error, CallerEnded):
                error.args = (self._of_work("the request was released while it waited"),)
            raise

    @contextlib.contextmanager
    def _leased(self, handle: Handle) -> Iterator[UnderLease]:
        """Hold the lease inside; give it back at the end, unless a step inside did."""
        leased = UnderLease(
            self._service,
            self._asked,
            handle,
            results=self._results,
            pool=self._pool,
            over=self._over,
            warn=self._warn,
        )
        try:
            yield leased
        finally:
            if not leased.has_given_back and not leased.is_left:
                give_back(self._service, handle, warn=self._warn)
                if self._service.handles.load(handle.id) is not None:
                    self._pool.leave_to_keeper()

    def _not_in_time(self) -> str:
        return self._of_work("no result before the deadline of --wait")

    def _of_work(self, what: str) -> str:
        return f"work {self._asked.work.title}: {what}"
