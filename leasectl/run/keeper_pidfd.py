"""Watch the keeper, and start another if it dies: for `run`, leases of threads, and `serve`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from leasectl.errors import Interrupted, LeaseError
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service
from leasectl.state import keeper_process
from leasectl.system.backoff import Backoff, Restarts
from leasectl.system.process import open_pidfd

_TRY_AGAIN_SECONDS = 1.0


class KeeperPidfd:
    """The pidfd of the keeper that the leases of this state directory need.

    Args:
        service: On the state directory.
        lock_patience: Returns how many seconds a lock may be waited for now; None for no limit.
        failed: Called with the error when the records can't be read or a keeper can't be started.

    Attributes:
        fd: Readable when the keeper has ended; None while there is none, or none is needed.
        look_at: When to look again, CLOCK_BOOTTIME; None if the descriptor tells.
    """

    def __init__(
        self,
        service: Service,
        *,
        lock_patience: Callable[[], float | None],
        failed: Callable[[LeaseError], object] = lambda error: None,
    ) -> None:
        self._service = service
        self._lock_patience = lock_patience
        self._failed = failed
        self._clock = service.clock
        self.fd: int | None = None
        self.look_at: float | None = None
        self._restarts = Restarts(Backoff(0.3, 30.0))
        self.look()

    def look(self) -> None:
        """Look which keeper there is, and start one if any is needed.

        A keeper that ends again and again is started ever more seldom, and none is started for a
        directory that was removed.
        """
        now = self._clock.elapsed()
        self.look_at = now + _TRY_AGAIN_SECONDS  # whatever fails below
        if self.fd is not None:
            self.close()
            pause = self._restarts.pause(now)
            if pause:
                self.look_at = now + pause
                return
        if self._service.state.was_removed():
            self.look_at = None
            return
        is_missing = True
        limit = self._service.state.lock_limit.within(self._lock_patience())
        try:
            with contextlib.suppress(Interrupted), limit:
                recover(self._service)
                keeper = keeper_process.running(self._service.state)
                self.fd = None if keeper is None else open_pidfd(keeper)
                is_missing = self.fd is None and self._service.handles.any_watched()
        except LeaseError as error:
            self._failed(error)
        now, self.look_at = self._clock.elapsed(), None
        if self.fd is not None:
            self._restarts.started(now)
        elif is_missing:
            self.look_at = now + self._restarts.pause(now)

    def close(self) -> None:
        """Watch no longer."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
