"""Looking after a lease beside the command that runs under it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Mapping
from typing import Any, Callable

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import Interrupted, LeaseError, LeaseLost, NotAllowed
from leasectl.leases.recovery import recover
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.system.clock import Clock, earliest
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.process import open_pidfd
from leasectl.system.request_threads import Outcome
from leasectl.system.signals import lock_limit

GRACE_AFTER_LOSS_SECONDS = 10.0
# How long a lock is waited for at a time: the command, its signals and its deadline need looking
# after meanwhile, and a ttl can be short.
LOCK_PATIENCE_SECONDS = 0.3


class LeaseWatch:
    """Looks after a lease while the command runs: renews it, notices its loss and the keeper's end.

    The deadline counts from the *sending* of the last renewal that succeeded: whatever became of
    later ones, nobody else can have been granted the lease before it.

    Args:
        service: Where the lease comes from.
        handle: Its handle.
        renewed_at: When the last renewal that succeeded was sent, CLOCK_BOOTTIME.
        clock: Where times come from.
    """

    def __init__(
        self, service: Service, handle: Handle, *, renewed_at: float, clock: Clock
    ) -> None:
        self._service = service
        self._handle = handle
        self._clock = clock
        self._ttl = handle.request.ttl_seconds
        self._revoked = False
        self._over = False
        self._deadline = None if self._ttl is None else renewed_at + self._ttl
        self._renew_at = None if self._ttl is None else renewed_at + self._ttl / 3
        self._heartbeats = (
            RenewalThreads(service.state, clock=clock)
            if self._ttl is not None and not kind_of_handle(handle).shares_transaction
            else None
        )
        self._pipe = NamedPipe(service.state.runner_pipe(handle.id))
        self._keeper_fd: int | None = None
        self._look_for_keeper_at: float | None = None
        self._watch_keeper()

    @property
    def names(self) -> tuple[str, ...]:
        """Of what was leased."""
        return self._handle.names

    def until(self, now: float) -> float | None:
        """When there is something to look at again at the latest."""
        give_up_at = self._give_up_at
        ahead = give_up_at if give_up_at is not None and give_up_at > now else None
        return earliest(self._renew_at, ahead, self._look_for_keeper_at)

    @property
    def _margin(self) -> float:
        assert self._ttl is not None
        return self._ttl / 5

    @property
    def _give_up_at(self) -> float | None:
        return None if self._deadline is None else self._deadline - self._margin

    @property
    def _lock_patience(self) -> float:
        if self._give_up_at is None:
            return LOCK_PATIENCE_SECONDS
        return min(LOCK_PATIENCE_SECONDS, max(0.0, self._give_up_at - self._clock.elapsed()))

    def is_lost(self, now: float) -> bool:
        """Tell whether the command has to end: the lease was taken, or soon will be."""
        if self._over:
            return False
        return self._revoked or (self._give_up_at is not None and now >= self._give_up_at)

    def kill_at(self, now: float) -> float:
        """When a command that doesn't heed TERM is killed."""
        deadline = None if self._deadline is None else self._deadline - self._margin / 4
        grace = now + GRACE_AFTER_LOSS_SECONDS if self._revoked else None
        return earliest(deadline, grace) or now + GRACE_AFTER_LOSS_SECONDS

    def register(self, poll: select.poll) -> None:
        poll.register(self._pipe.fd, select.POLLIN)
        if self._heartbeats is not None:
            poll.register(self._heartbeats.fd, select.POLLIN)
        if self._keeper_fd is not None:
            poll.register(self._keeper_fd, select.POLLIN)

    def look(self, events: Mapping[int, int], poll: select.poll) -> None:
        """Do what the events and the time ask for."""
        if self._pipe.fd in events:
            poll.unregister(self._pipe.fd)
            self._pipe.renew()
            self._look_at_record()
        if self._keeper_fd is not None and self._keeper_fd in events:
            poll.unregister(self._keeper_fd)
            self._watch_keeper()
        if self._heartbeats is not None:
            for target, heartbeat in self._heartbeats.outcomes():
                self._take(target, heartbeat)
        now = self._clock.elapsed()
        if self._look_for_keeper_at is not None and now >= self._look_for_keeper_at:
            self._watch_keeper()
        if self._renew_at is not None and now >= self._renew_at:
            self._renew()

    def close(self) -> None:
        self._pipe.close()
        if self._heartbeats is not None:
            self._heartbeats.close()
        if self._keeper_fd is not None:
            os.close(self._keeper_fd)

    def _look_at_record(self) -> None:
        record = self._service.handles.load(self._handle.id)
        self._revoked = record is not None and record.lost

    def _renew(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.send(self._handle)
            self._renew_at = None  # its outcome says when next
            return
        sent = self._clock.elapsed()
        self._note_renewal(sent, lambda: renew(self._service, whole(self._handle)))

    def _take(self, target: ReleaseTarget, heartbeat: Outcome[Any]) -> None:
        def record() -> None:
            held = heartbeat.result()
            if set(self._handle.names).issubset(held):
                self._extend(heartbeat.sent_at)  # also if it can't be recorded
            note_renewal(self._service, target, held)

        self._note_renewal(heartbeat.sent_at, record)

    def _note_renewal(self, sent: float, renew: Callable[[], object]) -> None:
        try:
            with lock_limit(self._lock_patience):
                renew()
        except NotAllowed:
            # It was given back on purpose; the command goes on without.
            self._renew_at = self._deadline = None
            self._over = True
        except LeaseLost:
            self._revoked = True
            self._renew_at = None
        except (LeaseError, Interrupted):
            assert self._ttl is not None
            self._renew_at = self._clock.elapsed() + min(1.0, self._ttl / 10)
        else:
            self._extend(sent)

    def _extend(self, sent: float) -> None:
        assert self._ttl is not None
        self._deadline = sent + self._ttl
        self._renew_at = sent + self._ttl / 3

    def _watch_keeper(self) -> None:
        if self._keeper_fd is not None:
            os.close(self._keeper_fd)
        self._keeper_fd = self._look_for_keeper_at = None
        missing = True
        with contextlib.suppress(LeaseError, Interrupted), lock_limit(self._lock_patience):
            recover(self._service)
            keeper = keeper_process.running(self._service.state)
            self._keeper_fd = None if keeper is None else open_pidfd(keeper)
            missing = self._keeper_fd is None and self._service.handles.any_watched()
        if missing:
            self._look_for_keeper_at = self._clock.elapsed() + LOCK_PATIENCE_SECONDS
