"""Look after a lease in a thread, as `run` does beside its command.

The thread renews the lease, answers reclaims, and reports the loss of the lease. It knows the
deadline, because it sends the renewals itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from leasectl.errors import Cancelled, LeaseError
from leasectl.leases.release import release_each
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, whole
from leasectl.run.holder_answers import HolderAnswers
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.supervision import Beside
from leasectl.system.clock import earliest
from leasectl.system.poll import Alarm, sleep
from leasectl.system.process import open_pidfd
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup

_TRY_AGAIN_SECONDS = 0.1
_LOOK_AGAIN_SECONDS = 1.0


class LeaseThread:
    """Looks after one lease of this process until it is lost, released or closed.

    Args:
        service: Where the lease comes from; the thread's own from now on.
        handle: Its handle, announced with this process for its runner.
        renewed_at: When the last renewal that succeeded was sent, CLOCK_BOOTTIME.
        guard: Another process whose end ends the lease; None for this process, or for no guard.
        on_lost: Called with the reason, perhaps empty, when the lease is lost.
        on_end: Called with the service when the thread needs it no longer.

    Raises:
        Cancelled: The guard has ended already.
        LeaseError: No descriptor is left.
    """

    def __init__(
        self,
        service: Service,
        handle: Handle,
        *,
        renewed_at: float,
        guard: Process | None,
        on_lost: Callable[[str], None],
        on_end: Callable[[Service], None],
    ) -> None:
        self._service = service
        self._handle = handle
        self._clock = service.clock
        self._on_lost = on_lost
        self._on_end = on_end
        self._guard = guard
        self._has_warned: set[str] = set()
        self._is_closed = False
        self._look_at = handle.release_at
        self._opened = contextlib.ExitStack()
        # Taken by whoever cleans up: the thread once it runs, or `close` if it never will.
        self._cleaning = threading.Lock()
        self._has_ended = threading.Event()
        self._thread_id = 0
        try:
            self._alarm = Alarm()
            self._opened.callback(self._alarm.close)
            self._wakeup = Wakeup()
            self._opened.callback(self._wakeup.close)
            self._guard_fd = None if guard is None else self._watch_guard(guard)
            self._watch = LeaseWatch(service, handle, renewed_at=renewed_at)
            self._opened.callback(self._watch.close)
            answers = HolderAnswers(service, handle, ask=None)
            self._opened.callback(answers.close)
            self._beside: tuple[Beside, ...] = (self._watch, answers)
            self._watch.noted = answers.heed
            answers.heed(None)
        except BaseException:
            self._opened.close()
            raise

    def _watch_guard(self, guard: Process) -> int:
        fd = open_pidfd(guard)
        if fd is None:
            raise Cancelled(f"guard {guard.pid} has ended")
        self._opened.callback(os.close, fd)
        return fd

    # ---- called by other threads

    def start(self) -> None:
        """Start the thread. The caller has noted this object, so that it can close it.

        Raises:
            NoThread: There can't be one more.
        """
        start_thread(f"lease {self._handle.id}", self._run)

    @property
    def deadline(self) -> float | None:
        """When another holder may be granted the lease, CLOCK_BOOTTIME; None for never."""
        return self._watch.deadline

    def is_lost(self) -> bool:
        """Return whether the lease is lost, or is about to be, also before the thread noticed."""
        return self._watch.is_lost(self._clock.elapsed())

    def renewed(self, sent_at: float) -> None:
        """Note a renewal that the caller has sent, and that has succeeded."""
        self._watch.renewed(sent_at)

    def look_for_release(self, at: float) -> None:
        """Look at this time of CLOCK_BOOTTIME whether the keeper has released the lease."""
        self._look_at = at
        self._wakeup.set()

    def close(self) -> None:
        """End the thread, and wait for its end, unless this is called in it.

        It may be repeated, also after an interrupt at any point of `start` or of itself.
        """
        self._is_closed = True
        self._wakeup.set()
        if self._cleaning.acquire(blocking=False):
            self._clean_up()
        elif self._thread_id != threading.get_ident():
            self._has_ended.wait()

    # ---- in the thread

    def _run(self) -> None:
        if not self._cleaning.acquire(blocking=False):
            return  # closed before it began
        self._thread_id = threading.get_ident()
        try:
            self._look_after()
        except BaseException:
            self._on_lost("the thread that renews it has ended")
            raise
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        try:
            self._opened.close()
            self._on_end(self._service)
        finally:
            self._has_ended.set()

    def _look_after(self) -> None:
        while not self._is_closed and not self._is_over():
            now = self._clock.elapsed()
            until = earliest(self._look_at, *(each.until(now) for each in self._beside))
            self._alarm.set(until)
            fds = {fd for each in self._beside for fd in each.fds()}
            guard = set() if self._guard_fd is None else {self._guard_fd}
            woken = sleep(
                wake_fds=fds | guard | {self._wakeup.fd} | self._alarm.fds,
                interrupts=(),
                until=until,
                now=self._clock.elapsed,
            )
            self._wakeup.clear()
            if guard & woken:
                self._end_with_guard()
                return
            for each in self._beside:
                self._let_look(each, woken)

    def _is_over(self) -> bool:
        """Return whether the lease needs no more attention; report its loss."""
        if self.is_lost():
            self._on_lost(self._watch.reason)
            return True
        if self._watch.is_given_back:
            return True
        if self._look_at is None or self._clock.elapsed() < self._look_at:
            return False
        self._look_at = self._clock.elapsed() + _LOOK_AGAIN_SECONDS
        return self._service.current(whole(self._handle)) is None

    def _let_look(self, beside: Beside, woken: set[int]) -> None:
        try:
            beside.look(woken)
        except Exception as error:  # the deadline holds all the same
            self._warn(f"{error or type(error).__name__}; trying again")
            time.sleep(_TRY_AGAIN_SECONDS)

    def _warn(self, line: str) -> None:
        if line not in self._has_warned:
            self._has_warned.add(line)
            self._service.warn(f"lease {self._handle.id}: {line}")

    def _end_with_guard(self) -> None:
        assert self._guard is not None
        self._on_lost(f"guard {self._guard.pid} has ended")
        target = whole(self._handle, by="guard")
        try:
            release_each(self._service, [target], tell=lambda _: None)
        except LeaseError as error:
            self._warn(str(error))
