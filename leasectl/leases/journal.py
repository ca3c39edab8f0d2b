"""Keeping a handle's record in step with its acquisition."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.contract import Backend
from leasectl.backends.kinds import release_key_of
from leasectl.errors import Cancelled
from leasectl.leases.keeping import needs_keeper
from leasectl.model import Handle, Lease, Process
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.releasing import GivingBack
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead

# More than one, so that the records get fewer however many are made.
_PURGED_PER_ACQUIRE = 2


class RecordJournal:
    """The journal of one acquisition.

    Args:
        state: The opened state directory.
        backend: Where the leases come from.
        handle: The record to be made; for a further acquisition, the record there is.
        again: A further acquisition of a handle that is there.
        waiter: The process that acquires.
        clock: Where times come from.

    Attributes:
        handle: The record as this acquisition has made it.
        kept: Whether a keeper was there when the grant was recorded.
        unsettled: The server may have granted what couldn't be undone yet.
        was_cancelled: Somebody had asked to give the acquisition up when it was given up.
    """

    def __init__(
        self,
        state: State,
        backend: Backend,
        handle: Handle,
        *,
        again: bool,
        waiter: Process,
        clock: Clock,
    ) -> None:
        self.kept = False
        self.unsettled = False
        self.was_cancelled = False
        self._state = state
        self._handles = Handles(state)
        self._giving_back = GivingBack(state, release_key_of(handle))
        self._backend = backend
        self.handle = handle
        self._again = again
        self._waiter = waiter
        self._clock = clock

    @property
    def key(self) -> str:
        return self.handle.key

    @property
    def next_acquisition(self) -> int:
        """The number of the acquisition that `enqueuing` is going to begin."""
        return self.handle.acquisition + self._again

    def enqueuing(self) -> None:
        with self._state.transaction():
            if not self._again:
                self._handles.purge(now=self._clock.elapsed(), limit=_PURGED_PER_ACQUIRE)
                self._handles.create(self.handle, on_server=self._backend.remote)
                return
            current = self._handles.require(self.handle.id)
            if self._backend.remote and current.acquisition != self.handle.acquisition:
                raise Cancelled(f"handle {current.id} was acquired again by somebody else")
            if not self._backend.remote:
                self._backend.withdraw(current.id)
                self._backend.release(current.id, current.names)
            self.handle = self._handles.begin_again(current, self._waiter)

    def arrived(self, name: str) -> Lease | None:
        lease = remote_lease(self.handle, name, self._clock.wall())
        with self._state.transaction():
            if self._is_being_given_back(name):
                return None
            self._take_from_others(name)
            self._handles.arrived(self.handle, lease)
        return lease

    def _is_being_given_back(self, name: str) -> bool:
        return not all(map(is_dead, self._giving_back.processes(name)))

    def _take_from_others(self, name: str) -> None:
        """What the server grants anew is held by nobody, whatever a record still says.

        Its release was carried out and the answer lost, or the server has lost the lease. Were the
        record left alone, the next try to release it would hit the new grant.
        """
        other = self._handles.holding(name, prefer=self.handle.backend)
        if other is not None and other.backend == self.handle.backend:
            self._handles.drop(other, [name], now=self._clock.elapsed(), lost=True)
        self._giving_back.settled(name, self._waiter)

    def returned(self, name: str) -> None:
        with self._state.transaction():
            self._handles.returned(self.handle, name)

    def lost_reply(self) -> None:
        self._count_lost_replies(self.handle.lost_replies + 1)

    def to_undo(self) -> None:
        self.unsettled = True
        if not self.handle.lost_replies:
            self.lost_reply()

    def found(self) -> None:
        if self.handle.lost_replies:
            self._count_lost_replies(0)

    def granted(self, leases: Sequence[Lease]) -> None:
        delay = self.handle.request.release_after_seconds
        release_at = None if delay is None else self._clock.elapsed() + delay
        with self._state.transaction():
            self._handles.grant(self.handle, leases, release_at)
            self.handle = self.handle._replace(
                state="held", leases=tuple(leases), release_at=release_at
            )
            if needs_keeper(self.handle):
                self.kept = keeper_process.wake(self._state)

    def gave_up(self) -> None:
        if self.unsettled:
            return  # its record is what the keeper goes on by
        with self._state.transaction():
            current = self._handles.load(self.handle.id)
            if current is None or current.acquisition != self.handle.acquisition:
                self.was_cancelled = True
                return
            self.was_cancelled = current.cancelled
            if self._again:
                self._handles.release(current, now=self._clock.elapsed())
            else:
                self._handles.forget(current.id, current.acquisition)

    def leave_to_keeper(self) -> None:
        """What has arrived can't be given back now: have the keeper go on trying."""
        with self._state.transaction():
            self._handles.grant(self.handle, (), self._clock.elapsed())
            self._handles.announce(self.handle, guard=None, runner=None)
            keeper_process.wake(self._state)

    def _count_lost_replies(self, number: int) -> None:
        self.handle = self.handle._replace(lost_replies=number)
        with self._state.transaction():
            self._handles.count_lost_replies(self.handle, number)


def remote_lease(handle: Handle, name: str, now: float) -> Lease:
    """A lease of a server that tells nothing but the name; ``now`` is wall clock, in seconds."""
    return Lease(
        name=name,
        fence=0,
        ticket=0,
        grant=0,
        holder_identity=handle.holder_identity,
        acquire_time=now,
        renew_time=now,
        lease_duration_seconds=None,
        lease_transitions=0,
        labels=handle.request.labels,
    )
