"""Record each step of an acquisition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.kinds import place_of, release_key_of
from leasectl.leases.record_events import RecordEvents
from leasectl.leases.service import Service
from leasectl.model import Claimant, Handle, Lease, Process, whole
from leasectl.state import keeper_process
from leasectl.state.handles import count_lost_replies, is_watched, new_row, purge
from leasectl.state.timers import GivingBack
from leasectl.system.process import is_dead, liveness, this_process

if TYPE_CHECKING:
    from leasectl.backends.kinds import Backend


# A new handle whose id ends with one of these letters purges old records: every 16th, by chance. It
# purges three for each handle that is created, so that old records get fewer.
_PURGING_ENDS = "wxyz"
_PURGED_AT_ONCE = 48


class RecordJournal:
    """The journal of one acquisition.

    Args:
        service: On the state directory of the record.
        handle: The record to create; for a further acquisition, the existing record.
        again: For a further acquisition of an existing handle: called with its record in the
            transaction that begins it, to give back what it still holds. None for the first.
        start_delay_seconds: How long this process will hold the leases before it announces them; a
            delayed release counts from then on.
        listed: The path may be printed before the handle is announced, so the names file must exist
            from the grant on.

    Attributes:
        handle: The record as this acquisition has made it.
        unsettled: The store may have granted something that couldn't be undone yet.
        was_cancelled: The acquisition had been cancelled by the time it was given up.
    """

    _is_told = False  # whether there is an event of the request; a refused one has none

    def __init__(
        self,
        service: Service,
        handle: Handle,
        *,
        again: Callable[[Handle], None] | None = None,
        start_delay_seconds: float = 0.0,
        listed: bool = True,
    ) -> None:
        self.handle = handle
        self._start_delay_seconds = start_delay_seconds
        self.unsettled = False
        self.was_cancelled = False
        self._service = service
        self._handles = service.handles
        self._clock = service.clock
        self._again = again
        self._listed = listed
        self._kind = kind = service.kind_of(handle)
        self._remote = kind.remote
        self._events: RecordEvents | None = None
        if kind.remote and not kind.has_pools:
            self._events = RecordEvents(service.state, service.clock)
        # What takes time is done before the transaction, or others would wait for it.
        watched = is_watched(handle, remote=kind.remote)
        self._row = {} if again else new_row(handle, watched=watched)
        self._asked_at = self._clock.elapsed()
        self._met: dict[str, float] = {}  # when a name came that a release may still hit

    @property
    def key(self) -> str:
        return self.handle.key

    @property
    def needs_keeper(self) -> bool:
        """Whether the keeper has work to do for the handle while it isn't released."""
        held_back = self._start_delay_seconds > 0
        return held_back or self._remote or is_watched(self.handle, remote=False)

    def open(self) -> Backend:
        """Return the handle's backend, opened; start a keeper if there will be work for it."""
        backend = self._service.backend_of(self.handle)
        if self.needs_keeper:  # only now: an idle keeper could end while the backend is opened
            keeper_process.ensure(self._service.state)
        return backend

    def claimant(self) -> Claimant:
        """Return the claimant of the acquisition that `enqueuing` is going to begin."""
        acquisition = self.handle.acquisition + (self._again is not None)
        handle = self.handle._replace(acquisition=acquisition)
        holder, request = handle.guard or handle.runner, handle.request
        if request.release_after_seconds is not None:  # stores show it as counted from the grant
            after = request.release_after_seconds + self._start_delay_seconds
            request = request._replace(release_after_seconds=after)
        return Claimant(
            self._kind.claim_key(handle),
            handle.holder_identity,
            request,
            this_process(),
            holder.pid if holder else None,
            acquisition,
        )

    def enqueuing(self) -> None:
        with self._service.state.transaction():
            now = self._clock.elapsed()
            if self._again is None:
                if self.handle.id[-1] in _PURGING_ENDS:
                    purge(self._service.state, now=now, limit=_PURGED_AT_ONCE)
                self._handles.insert(self._row, now=now)
            else:
                current = self._handles.require(self.handle.id)
                self._again(current)
                self.handle = self._begin_again(current, now)
            if self.needs_keeper:
                keeper_process.ensure(self._service.state)
            if self._events:
                self._events.queued(self.handle)
                self._is_told = True

    def _begin_again(self, current: Handle, now: float) -> Handle:
        request, drawn = current.request, self.handle.request
        between = request.release_between_seconds
        if between is not None and between == drawn.release_between_seconds:
            after = drawn.release_after_seconds
            current = current._replace(request=request._replace(release_after_seconds=after))
        waiter = this_process()
        runner = waiter if self._start_delay_seconds else None
        return self._handles.begin_again(
            current, waiter, runner=runner, remote=self._remote, now=now
        )

    def arrived(self, name: str) -> Lease | None:
        lease = remote_lease(self.handle, name, self._clock.wall())
        giving_back = self._giving_back(self.handle)
        with self._service.state.transaction():
            if any(self._may_release(name, each) for each in giving_back.processes(name)):
                return None
            self._take_from_others(name, giving_back)
            self._handles.arrived(self.handle, lease)
        return lease

    def _may_release(self, name: str, process: Process) -> bool:
        """Return whether a recorded release may still be sent.

        Whether a process of another pid namespace lives can't be seen: it may have died with its
        container. So it gets as long as a release takes.
        """
        how = liveness(process)
        if how != "unknown":
            return how == "alive"
        from leasectl.backends.release_tries import MOST_SECONDS

        now = self._clock.elapsed()
        return now < self._met.setdefault(name, now) + MOST_SECONDS

    def _take_from_others(self, name: str, giving_back: GivingBack) -> None:
        """Take a name that the server has just granted to us from other handles that record it.

        Their release was carried out and its answer is lost or on its way, or the server has lost
        the lease. If the record stayed, the next try to release it would hit the new grant. A
        handle that is being acquired while it gives the name back keeps its other names.
        """
        backend = self.handle.backend
        other = self._handles.holding(name, prefer=lambda each: each.backend == backend)
        if other is not None and other.backend == backend:
            is_given_back = bool(self._giving_back(other).processes(name))
            if self._events and is_given_back:
                self._events.released(other, [name], by="command")
            elif self._events:
                self._events.lost(other, [name], reason="its server granted it again")
            if is_given_back and other.state == "acquiring" and not is_dead(other.waiter):
                self._handles.returned(other, name)
            else:
                now = self._clock.elapsed()
                self._handles.drop(other, [name], now=now, lost=not is_given_back)
        giving_back.settled(name, this_process())

    def returning(self, name: str) -> None:
        with self._service.state.transaction():
            self._giving_back(self.handle).start([name], this_process())

    def returned(self, name: str) -> None:
        with self._service.state.transaction():
            self._giving_back(self.handle).settled(name, this_process())
            self._handles.returned(self.handle, name)

    def _giving_back(self, handle: Handle) -> GivingBack:
        return GivingBack(self._service.state, release_key_of(handle))

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        delay, now = self.handle.request.release_after_seconds, self._clock.elapsed()
        release_at = None if delay is None else now + self._start_delay_seconds + delay
        handle = self.handle
        if handle.request.other_types and not handle.request.needs_all:
            handle = handle._replace(granted_type=pool_type or handle.request.type)
        with self._service.state.transaction():
            self._handles.grant(handle, leases, now=now)
            if self._remote and self._events is None:
                self._drop_stale(leases)
            if release_at is not None:
                release_at = self._handles.timers.arm_first(whole(handle), release_at)
            if self._listed:
                self._service.state.stage_names(handle.id, [each.name for each in leases])
            if self._events:
                self._events.granted(handle, leases, wait=now - self._asked_at)
            self.handle = handle._replace(state="held", leases=tuple(leases), release_at=release_at)
            if self.needs_keeper:
                keeper_process.wake(self._service.state)

    def _drop_stale(self, leases: Sequence[Lease]) -> None:
        """Drop the records of earlier leases of the same resources.

        A pool grants nothing that is held, so a larger fence says that those ran out unnoticed. The
        same URL may mean another pool: ``kubernetes://`` is in the namespace of a kubeconfig.
        """
        backend = self.handle.backend
        place = place_of(backend, self.handle.settings)
        for lease in leases:
            for other in self._handles.holders(lease.name, prefer=self._service.is_here):
                if other.backend != backend or place_of(backend, other.settings) != place:
                    continue
                fences = [each.fence for each in other.leases if each.name == lease.name]
                if max(fences) < lease.fence:
                    self._service.losses.note_gone(other, [lease.name])

    def gave_up(self, why: str = "") -> None:
        if self.unsettled:
            return  # the keeper needs its record
        with self._service.state.transaction():
            self._note_given_up(why)
            current = self._handles.load(self.handle.id)
            if current is None or current.acquisition != self.handle.acquisition:
                self.was_cancelled = True
                return
            self.was_cancelled = current.cancelled
            if self._again is not None:
                self._handles.release(current, now=self._clock.elapsed())
            else:
                self._handles.forget(current.id, current.acquisition)

    def to_undo(self) -> None:
        self.unsettled = True
        if not self.handle.lost_replies:
            self.lost_reply()

    def lost_reply(self) -> None:
        self._count_lost_replies(self.handle.lost_replies + 1)

    def found(self) -> None:
        if self.handle.lost_replies:
            self._count_lost_replies(0)

    def _count_lost_replies(self, number: int) -> None:
        self.handle = self.handle._replace(lost_replies=number)
        with self._service.state.transaction():
            count_lost_replies(self._service.state, self.handle, number)

    def _note_given_up(self, why: str) -> None:
        if self._events and self._is_told and self.handle.state == "acquiring":
            self._events.gave_up(self.handle, why, wait=self._clock.elapsed() - self._asked_at)

    def leave_to_keeper(self, why: str = "") -> None:
        """Let the keeper give back what has arrived, because it can't be given back now."""
        state = self._service.state
        with state.transaction():
            self._note_given_up(why)
            current, now = self._handles.load(self.handle.id), self._clock.elapsed()
            if current is not None and current.acquisition != self.handle.acquisition:
                return  # the next acquisition has dealt with this one
            if current is not None:
                self._handles.grant(self.handle, (), now=now)
            self._handles.timers.arm(whole(self.handle), now)
            self._handles.announce(self.handle, guard=None, runner=None)
            keeper_process.wake(state)


def remote_lease(handle: Handle, name: str, now: float) -> Lease:
    """Return a lease of a server that tells only the name; ``now`` is wall clock, in seconds."""
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
