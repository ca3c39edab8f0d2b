"""Acquiring leases that live on a server, where grant and record can't be one transaction."""

from __future__ import annotations

import select
from typing import Callable

from leasectl.backends.contract import Backend, Patience, Withdrawn
from leasectl.errors import BackendUnreachable, Cancelled, Interrupted, LeaseError
from leasectl.leases.journal import RecordJournal
from leasectl.model import Claimant, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.pipes import tidy
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.poll import Interrupt


class RemoteAcquire:
    """Acquires; what has arrived when it fails is given back, if need be later.

    Args:
        state: The opened state directory.
        release: Gives back what a target means.
    """

    def __init__(self, state: State, release: Callable[[ReleaseTarget], object]) -> None:
        self._state = state
        self._handles = Handles(state)
        self._release = release

    def __call__(
        self, backend: Backend, claimant: Claimant, journal: RecordJournal, patience: Patience
    ) -> None:
        """Acquire, unless the handle is released meanwhile.

        Raises:
            Cancelled: It was.
            BackendUnreachable: Its place in the queue was taken away by nobody here.
            LeaseError: As `Backend.acquire`.
        """
        acquisition = journal.next_acquisition
        tidy(self._state)
        pipe = NamedPipe(self._state.cancel_pipe(journal.handle.id, acquisition))

        def check() -> None:
            pipe.renew()
            record = self._handles.current(journal.handle.id, acquisition)
            if record is None or record.cancelled:
                raise Cancelled(f"{journal.handle.id} was released while it waited")

        interrupt = Interrupt(pipe.fd, select.POLLIN, check)
        try:
            backend.acquire(
                claimant, journal, patience._replace(interrupts=(*patience.interrupts, interrupt))
            )
        except BaseException as reason:
            has_lost_place = isinstance(reason, Withdrawn) and not journal.was_cancelled
            try:
                self._release(whole(journal.handle))
            except (LeaseError, Interrupted):
                journal.unsettled = True
            if journal.unsettled:
                self.leave_to_keeper(journal)
            else:
                journal.gave_up()
            if has_lost_place:
                raise BackendUnreachable(
                    f"{journal.handle.request.type}: {backend.url} ended the request while it "
                    "waited, although nobody here had asked for that; ask again"
                ) from reason
            raise
        finally:
            pipe.close()

    def leave_to_keeper(self, journal: RecordJournal) -> None:
        """Have the keeper give back what can't be given back now."""
        journal.leave_to_keeper()
        keeper_process.ensure(self._state)
