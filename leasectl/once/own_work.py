"""Do a work in this process: the caller does it, or gets the result of another process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from leasectl.backends.contract import Patience
from leasectl.errors import LeaseError, LeaseLost
from leasectl.model import Handle
from leasectl.once.command import Came, too_large
from leasectl.once.queue import WorkQueue
from leasectl.once.results import Outcome, Round
from leasectl.once.under_lease import UnderLease


class OwnWork(WorkQueue):
    """Gets one work done: by another waiter, or else by the caller.

    Args: see `WorkQueue`.
    """

    _leased_now: UnderLease
    _round: Round

    def begin(self, patience: Patience, hold: Callable[[Handle], None]) -> Outcome | None:
        """Return what others have done, or None when the caller is to do the work.

        The caller then calls `record`, `fail` or `stop`, and `leave` in any case.

        Args:
            patience: How long to wait for those who do it.
            hold: Announces the lease of the work, and looks after it from now on.

        Raises:
            NoLease: It wasn't done in time.
            LeaseError: Too many processes have died while they did it.
        """
        self._exits = contextlib.ExitStack()
        give_up_at = patience.until(self._clock.elapsed())
        while True:
            found = self._look(give_up_at)
            if found is not None:
                return found
            handle = self._acquire(patience, give_up_at)
            with contextlib.ExitStack() as exits:
                leased = exits.enter_context(self._leased(handle))
                kept, found = self._kept()
                found = found or leased.share_failure()
                if found is not None:
                    return found
                try:
                    hold(handle)
                except LeaseLost:
                    continue  # before anything was done under it
                began = leased.begin(kept)
                if began is not None:
                    self._leased_now, self._round = leased, began
                    self._exits = exits.pop_all()
                    return None

    def record(self, content: bytes, seconds: float) -> None:
        """Record the result, and give the lease back in the same step.

        Raises:
            LeaseLost: The lease is another's by now, and nothing was recorded.
            LeaseError: The result can't be kept; that is recorded as a failure.
        """
        came, largest = Came(content, seconds), self._service.values.largest_content
        if len(content) > largest:
            came = came.without_result(too_large("the result", largest))
        outcome = self._leased_now.record(self._round, came, None)
        if outcome.error is not None:
            raise outcome.error

    def fail(self, error: Exception, lines: str, seconds: float) -> None:
        """Record that the work has failed: the next waiter does it, unless it is to be shared."""
        status = error.exit_code if isinstance(error, LeaseError) else 1
        shown = LeaseError(lines)
        self._leased_now.record(
            self._round, Came(None, seconds, status=status, error=shown, lines=lines), None
        )

    def stop(self) -> None:
        """Give up, and leave the work to the next waiter."""
        self._leased_now.stop(self._round)

    def leave(self) -> None:
        """Give back what is left of the lease and its pool."""
        with self._exits:
            pass
        self._pool.leave()
