"""Renew the lease beside the command, and notice its loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from leasectl.backends.kinds import claim_key_of, kind_of_handle, renew_seconds
from leasectl.errors import Interrupted, LeaseError, LeaseLost, NotAllowed
from leasectl.leases.release import give_up_lost
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.run.keeper_pidfd import KeeperPidfd
from leasectl.state.handles import explain_loss
from leasectl.state.named_pipe import listen
from leasectl.system.clock import earliest
from leasectl.system.request_threads import Outcome
from leasectl.text.naming import work_in
from leasectl.text.wording import listed

if TYPE_CHECKING:
    from leasectl.backends.servers import ClaimWatch
    from leasectl.engines.notes import Note

GRACE_AFTER_LOSS_SECONDS = 10.0
# How long to wait for a lock at a time: the command, its signals and its deadline need attention
# meanwhile, and a ttl can be short.
LOCK_PATIENCE_SECONDS = 0.3
_TRY_AGAIN_SECONDS = 1.0


class LeaseWatch:
    """Looks after a lease while the command runs: renews it, notices its loss and the keeper's end.

    The deadline counts from the *sending* of the last renewal that succeeded: whatever became of
    later renewals, no other handle can have been granted the lease before it.

    Args:
        service: Where the lease comes from.
        handle: Its handle.
        renewed_at: When the last renewal that succeeded was sent, CLOCK_BOOTTIME.

    Attributes:
        service: As given.
        handle: As given; without the leases that were taken back meanwhile.
        deadline: When another holder may be granted the lease, if nothing renews it meanwhile;
            CLOCK_BOOTTIME, None for never.
        is_given_back: A renewal has found that the lease was given back on purpose.
        noted: Called with the notes at the leases, as renewals read them; with None where notes may
            have been added or removed.
    """

    def __init__(self, service: Service, handle: Handle, *, renewed_at: float) -> None:
        self.noted: Callable[[Sequence[Note] | None], None] = lambda notes: None
        self.service = service
        self.handle = handle
        self._clock = service.clock
        self._ttl = handle.request.ttl_seconds
        self._margin_seconds = (self._ttl or 0.0) / 5
        self._was_taken = False
        self.is_given_back = False
        self._has_no_record = False  # the state directory was removed or replaced
        self.deadline = None if self._ttl is None else renewed_at + self._ttl
        self._renew_at = None if self._ttl is None else renewed_at + renew_seconds(handle)
        self._threads: RenewalThreads | None = None
        self._claim_watch: ClaimWatch | None = None
        self._give_up_lost_at: float | None = None
        self._look_at_record_at: float | None = None
        self._failure: LeaseError | None = None  # of the last renewal
        self._is_stale = False  # something has changed since the last renewal was sent
        if self._ttl is not None and kind_of_handle(handle).remote:
            self._threads = RenewalThreads(service.state, clock=service.clock)
            self._threads.open(handle)  # the command may use up the processes
            self._claim_watch = kind_of_handle(handle).open_claim_watch(
                service.context.at(handle.backend, handle.settings),
                state_id=service.state.state_id(),
                claim_key=claim_key_of(handle),
                fence=min((lease.fence for lease in handle.leases), default=0),
            )
        self._pipe = listen(service.state.runner_pipe(handle.id))
        self._removal = service.state.removal_watch()
        self.look_at_record()  # a loss before now has woken no process
        self._look_at_directory()
        self._keeper = KeeperPidfd(service, lock_patience=self._lock_patience)

    @property
    def reason(self) -> str:
        """Why the lease was lost: who took it by force and why, or what failed its renewals; empty
        if that isn't known."""
        if self._has_no_record:
            return f"state directory {self.service.state.directory} was removed or replaced"
        record = self.service.handles.load(self.handle.id)
        if record is not None and record.lost_reason:
            return record.lost_reason
        return "" if self._failure is None else f"not renewed: {self._failure}"

    @property
    def held(self) -> str:
        """The leased names, or the work, for messages."""
        return work_in(self.handle.request.labels) or listed(self.handle.names)

    @property
    def subject(self) -> str:
        """What it was leased of, for people: a pool, or a work."""
        return work_in(self.handle.request.labels) or self.handle.type or ""

    @property
    def last_moment(self) -> float | None:
        """When the command has to have ended, if nothing renews the lease meanwhile."""
        if self.deadline is None:
            return None
        return self.deadline - self._margin_seconds / 4

    def renewed(self, sent_at: float) -> None:
        """Note a renewal that another thread has sent, and that has succeeded."""
        if self.deadline is not None and self._ttl is not None:
            self.deadline = max(self.deadline, sent_at + self._ttl)

    # ---- called by the supervisor

    def fds(self) -> list[int]:
        """What becomes readable when there is something to look at."""
        watches = (self._threads, self._claim_watch)
        server_fds = [each.fd for each in watches if each is not None]
        removal_fd = None if self._has_no_record else self._removal.fd
        fds = (self._pipe.fd, removal_fd, *server_fds, self._keeper.fd)
        return [fd for fd in fds if fd is not None]

    def until(self, now: float) -> float | None:
        """When there is something to look at again at the latest."""
        give_up_at = self._give_up_at
        ahead = give_up_at if give_up_at is not None and give_up_at > now else None
        again = earliest(self._give_up_lost_at, self._look_at_record_at)
        return earliest(self._renew_at, ahead, self._keeper.look_at, again)

    def look(self, woken: Collection[int]) -> None:
        """Do what the descriptors that have something to say, and the time, ask for."""
        failed: Exception | None = None
        for part in (
            self._look_at_pipe,
            self._look_at_removal,
            self._look_at_keeper,
            self._look_at_claims,
            self._look_at_outcomes,
            self._look_at_times,
        ):
            try:
                part(woken)
            except Exception as error:  # a part that fails must not delay a renewal
                failed = failed or error
        if failed is not None:
            raise failed

    def _look_at_pipe(self, woken: Collection[int]) -> None:
        if self._pipe.fd in woken:
            self._look_at_record_at = self._clock.elapsed()  # in case the pipe can't be renewed
            self._pipe.renew()
            self.look_at_record()
            self.noted(None)

    def _look_at_removal(self, woken: Collection[int]) -> None:
        if self._removal.fd is not None and self._removal.fd in woken:
            self._removal.clear()
            self._look_at_directory()

    def _look_at_keeper(self, woken: Collection[int]) -> None:
        is_over = self._keeper.fd is not None and self._keeper.fd in woken
        at = self._keeper.look_at
        if is_over or (at is not None and self._clock.elapsed() >= at):
            self._keeper.look()

    def _look_at_claims(self, woken: Collection[int]) -> None:
        if self._claim_watch is not None and self._claim_watch.fd in woken:
            news = self._claim_watch.take()
            if news.notes is None:
                self._look_anew(news.reason)
            else:
                self.noted(news.notes)

    def _look_at_outcomes(self, woken: Collection[int]) -> None:
        if self._threads is not None:
            for target, outcome in self._threads.outcomes():
                self._take(target, outcome)

    def _look_at_times(self, woken: Collection[int]) -> None:
        now = self._clock.elapsed()
        if self._renew_at is not None and now >= self._renew_at:
            self._renew()
        if self._look_at_record_at is not None and now >= self._look_at_record_at:
            self.look_at_record()
        if self._give_up_lost_at is not None and now >= self._give_up_lost_at:
            self.go_on_without()

    def is_lost(self, now: float) -> bool:
        """Tell whether the command has to end: the lease was taken, or soon may be."""
        if self.is_given_back:
            return False
        return self._was_taken or (self._give_up_at is not None and now >= self._give_up_at)

    def has_run_out(self, now: float) -> bool:
        """Tell whether nothing has renewed it in time, as far as is known here, nor given it back
        before."""
        if self.deadline is None or now < self.deadline:
            return False
        with contextlib.suppress(LeaseError):
            record = self.service.handles.load(self.handle.id)
            return record is None or record.lost or record.state != "released"
        return True

    def kill_at(self, now: float) -> float:
        """When a command that doesn't heed TERM is killed."""
        grace = now + GRACE_AFTER_LOSS_SECONDS if self._was_taken else None
        return earliest(self.last_moment, grace) or now + GRACE_AFTER_LOSS_SECONDS

    def go_on_without(self) -> None:
        """Continue without the lease; give it up now if it has no ttl."""
        self._give_up_lost_at = None
        if self._ttl is None:
            try:
                with self._lock_limit():
                    give_up_lost(self.service, whole(self.handle))
            except (LeaseError, Interrupted):
                self._give_up_lost_at = self._clock.elapsed() + _TRY_AGAIN_SECONDS

    def close(self) -> None:
        """Watch no longer."""
        self._pipe.close()
        for each in (self._threads, self._claim_watch):
            if each is not None:
                each.close()
        self._keeper.close()
        self.service.state.close_removal_watch()

    # ---- deadlines

    @property
    def _give_up_at(self) -> float | None:
        return None if self.deadline is None else self.deadline - self._margin_seconds

    def _lock_patience(self) -> float:
        if self._give_up_at is None:
            return LOCK_PATIENCE_SECONDS
        return min(LOCK_PATIENCE_SECONDS, max(0.0, self._give_up_at - self._clock.elapsed()))

    def _lock_limit(self) -> AbstractContextManager[None]:
        return self.service.state.lock_limit.within(self._lock_patience())

    def _extend(self, sent_at: float) -> None:
        assert self._ttl is not None
        self._failure = None
        self.deadline = sent_at + self._ttl
        self._renew_at = sent_at + renew_seconds(self.handle)

    # ---- renewals

    def look_at_record(self) -> None:
        """See whether the lease was taken by force before this process listened on its pipe.

        A process that takes it right now may have found no pipe, or an older one, and then it wakes
        no reader. So look with the lock, or look again.
        """
        self._look_at_record_at = self._clock.elapsed() + _TRY_AGAIN_SECONDS
        has_waited = False
        with contextlib.suppress(LeaseError, Interrupted):
            with self._lock_limit(), self.service.state.transaction():
                pass
            has_waited = True
        record = self.service.handles.load(self.handle.id)
        if has_waited:
            self._look_at_record_at = None
        self._was_taken = self._was_taken or (record is not None and record.lost)
        self._note_left(record)

    def _look_at_directory(self) -> None:
        """See whether others still find the record of this lease.

        Where they don't, the next command may be granted the same. A lease that expires is as good
        as lost then; one that doesn't is held by nothing but this process.
        """
        if self._has_no_record or not self.service.state.was_removed():
            return
        self._has_no_record = True
        if self._ttl is not None:
            self._was_taken = True
            self._renew_at = None
        else:
            self.service.warn(
                f"{self.reason}: others may be granted {self.held} while it is in use here"
            )

    def _note_left(self, record: Handle | None) -> None:
        """Go on with what is left of the lease when some of it has been taken back."""
        if record is not None and record.leases and whole(record) == whole(self.handle):
            self.handle = self.handle._replace(leases=record.leases)

    def _look_anew(self, reason: str) -> None:
        """Renew now, for that shows what is left; if a renewal is under way, when it has come."""
        self._is_stale = True
        if reason:
            handle, state = self.handle, self.service.state
            with (
                contextlib.suppress(LeaseError, Interrupted),
                self._lock_limit(),
                state.transaction(),
            ):
                explain_loss(state, handle, reason)
        if self._renew_at is not None:
            self._renew_at = self._clock.elapsed()

    def _renew(self) -> None:
        if self._threads is not None:
            self._is_stale = False
            try:
                self._threads.send(self.handle)
            except Exception:  # no thread or descriptor is left for it
                self._renew_again()
                raise
            self._renew_at = None  # its outcome sets the next time
            return
        sent_at = self._clock.elapsed()
        self._note_renewal(sent_at, lambda: renew(self.service, whole(self.handle)))

    def _take(self, target: ReleaseTarget, outcome: Outcome[Any, Renewed]) -> None:
        def record() -> None:
            held, notes, _ = outcome.result()
            if set(self.handle.names).issubset(held):
                self._extend(outcome.sent_at)  # also if it can't be recorded
            self._note_left(note_renewal(self.service, target, held))
            self.noted(notes)

        self._note_renewal(outcome.sent_at, record)
        if self._is_stale and self._renew_at is not None:
            self._renew_at = self._clock.elapsed()

    def _note_renewal(self, sent_at: float, renewed: Callable[[], object]) -> None:
        try:
            with self._lock_limit():
                renewed()
        except NotAllowed:
            # It was given back on purpose; the command goes on without.
            self._renew_at = self.deadline = None
            self.is_given_back = True
        except LeaseLost:
            self._was_taken = True
            self._renew_at = self._failure = None
        except LeaseError as error:
            self._failure = error
            self._renew_again()
        except Interrupted:
            self._renew_again()
        except Exception:
            self._renew_again()
            raise
        else:
            self._extend(sent_at)

    def _renew_again(self) -> None:
        assert self._ttl is not None
        self._renew_at = self._clock.elapsed() + min(1.0, self._ttl / 10)
