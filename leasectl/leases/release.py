"""Release what a handle holds, or leave the queue.

Any number of releases of one acquisition, at once or one after the other, succeed; the names are
returned to exactly one of them.

**Where the leases are rows of our own database**, a release and its record are one transaction.

**On a server** they aren't. A release is on record from before it is sent until its outcome is
certain: if the name is granted again meanwhile, the release could still hit the new grant. If
several processes release the same lease at once, the one that finds it in the record in the end has
released it. Where the server is told only a name, only one of them may ask: as a command of `run`
ends, its keeper may release too, and a second request could hit the next holder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from leasectl.backends.kinds import Backend, claim_key_of, kind_of_handle, release_key_of
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.leases.record_events import IS_GONE, RecordEvents
from leasectl.leases.service import Service, unlist
from leasectl.model import Handle, Process, ReleasedBy, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.handles import (
    forget_plain,
    is_plain,
    remember_release_after,
    renews_itself,
)
from leasectl.state.timers import GivingBack
from leasectl.system.process import is_dead, this_process
from leasectl.system.signals import pause
from leasectl.text.wording import followed_by

_LOOK_AGAIN_SECONDS = 0.01


def release(service: Service, target: ReleaseTarget) -> tuple[str, ...]:
    """Release a target.

    An adopted handle that can't be given back is forgotten: no process here has leased it.

    Args:
        service: On the state directory of its handle.
        target: Nothing happens if its handle was released, or acquired again since.

    Returns:
        The names that this call has released.

    Raises:
        BackendUnreachable: A server didn't take all of it back; `released` has what it took.
        LeaseError: The backend or the state directory failed; nothing has changed.
    """
    handle = service.handles.load(target.handle_id)
    if handle is None:
        return ()
    backend = service.backend_of(handle)
    if backend.remote:
        return _RemoteRelease(service, backend, handle, target).carry_out()
    with backend.atomic():
        current = service.current(target)
        if current is None:
            give_up_lost(service, target)
            return ()
        wanted = current.names if target.names is None else target.names
        freed = _free(backend, current, wanted, by=target.by)
        if len(freed) < len(wanted):
            current = service.current(target)  # the backend may have found that some had expired
        if current is not None:
            service.handles.drop(current, wanted, now=service.clock.elapsed())
    unlist(service, handle, wanted)
    return freed


def finish(service: Service, handle: Handle, *, by: ReleasedBy = "command") -> tuple[str, ...]:
    """Release a handle that no command will use again, and forget it.

    A handle that was acquired again since is left as it is: it holds other leases now.

    Args:
        service: On its state directory.
        handle: The handle.
        by: What ends its leases, for the record of events.

    Returns:
        The names that this call has released.

    Raises:
        LeaseError: See `release`.
    """
    backend, target = service.backend_of(handle), whole(handle, by=by)
    if backend.remote:
        names = release(service, target)
        with service.state.transaction():
            service.handles.forget(handle.id, handle.acquisition)
        return names
    with backend.atomic():
        if handle.state == "held" and is_plain(service.state, handle):
            freed = tuple(backend.release(handle.id, handle.names, by=by))
            forget_plain(service.state, handle)
        else:
            current = service.current(target)
            freed = () if current is None else _free(backend, current, current.names, by=by)
            if current is None:
                give_up_lost(service, target)
            service.handles.forget(handle.id, handle.acquisition)
    unlist(service, handle, handle.names)
    return freed


def _free(
    backend: Backend, handle: Handle, names: Sequence[str], *, by: ReleasedBy
) -> tuple[str, ...]:
    """Free what a handle holds of a pool of ours, or take it out of the queue."""
    if handle.state == "acquiring":
        from leasectl.engines.rules.events import why_withdrawn

        backend.withdraw(handle.id, why_withdrawn(by))
        return ()
    is_all = handle.lost and len(names) == len(handle.names)  # also what was taken by force
    return tuple(backend.release(handle.id, () if is_all else names, by=by))


def give_up_lost(service: Service, target: ReleaseTarget) -> None:
    """Tell a pool to free the leases that a holder lost by force: it has done with them.

    A claim that ended early isn't granted again while its holder may not know of the end. A holder
    that releases does know.

    Args:
        service: On the state directory of the handle.
        target: Nothing happens if its handle still holds something, or was acquired again since.

    Raises:
        LeaseError: The pool couldn't be told now; the claims end by themselves within a ttl.
    """
    # Read once more: the keeper may have found the loss by now.
    handle = service.handles.load(target.handle_id)
    if handle is None or not handle.lost or handle.state != "released":
        return
    if whole(handle, by=target.by) == target and kind_of_handle(handle).has_pools:
        backend = service.backend_of(handle)
        with backend.atomic():
            list(backend.release(claim_key_of(handle), (), by=target.by))


class _RemoteRelease:
    """One release on a server, from the record through the server back to the record.

    Args:
        service: On the state directory of the handle.
        backend: The handle's.
        handle: As just loaded.
        target: The names that are meant.
    """

    def __init__(
        self, service: Service, backend: Backend, handle: Handle, target: ReleaseTarget
    ) -> None:
        self._service = service
        self._state = service.state
        self._handles = service.handles
        self._backend = backend
        self._handle = handle
        self._target = target
        self._giving_back = GivingBack(service.state, release_key_of(handle))
        self._events = RecordEvents(service.state, service.clock)
        self._names: tuple[str, ...] = ()  # all that are meant
        self._settled: set[str] = set()  # those that have left the record by this release
        self._released: set[str] = set()  # those of them that were leased until then

    def carry_out(self) -> tuple[str, ...]:
        """Release name by name, and take released names out of the list of scope ``test``.

        Raises:
            BackendUnreachable: Some couldn't be released; they stay in the record.
        """
        try:
            self._release()
        except BackendUnreachable as error:
            error.released = self._released_in_order()
            if self._handle.adopted_claim is not None:
                self._disown()
            raise
        finally:
            unlist(self._service, self._handle, self._settled)
        return self._released_in_order()

    def _released_in_order(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name in self._released)

    def _release(self) -> None:
        target = self._target
        with self._state.transaction():
            handle = self._service.current(target)
            if handle is not None:
                self._names = handle.names if target.names is None else target.names
                cancels = is_acquired_by_another(handle)
                others = () if cancels else self._at_others()
                mine = [name for name in self._names if name not in others]
                tried_before = frozenset(filter(self._giving_back.processes, self._names))
                if cancels:
                    self._handles.cancel(handle)
                else:
                    self._giving_back.start(mine, this_process())
        if handle is None:  # released already
            with contextlib.suppress(BackendUnreachable):
                give_up_lost(self._service, target)
            return
        if cancels:
            from leasectl.engines.rules.events import why_withdrawn

            with contextlib.suppress(BackendUnreachable):  # the waiter was woken here as well
                self._backend.withdraw(claim_key_of(handle), why_withdrawn(target.by))
            return
        self._send(mine)
        if others:
            self._send(self._taken_over(others))
        if target.names is None and (handle.lost or _may_have_more(handle)):
            list(self._backend.release(claim_key_of(handle), (), by=target.by))
        self._record_what_is_over(tried_before)

    def _at_others(self) -> tuple[str, ...]:
        """Return the names that another process is releasing, where only one may ask the server."""
        if not kind_of_handle(self._handle).releases_by_name:
            return ()

        def is_other(process: Process) -> bool:
            return process != this_process() and not is_dead(process)

        processes = self._giving_back.processes
        return tuple(name for name in self._names if any(map(is_other, processes(name))))

    def _taken_over(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names that others were releasing, once those gave up or are too slow."""
        from leasectl.backends.release_tries import SLOW_ANSWER_SECONDS

        seconds, clock = self._service.context.release_seconds, self._service.clock
        most = SLOW_ANSWER_SECONDS if seconds is None else min(seconds, SLOW_ANSWER_SECONDS)
        until = clock.elapsed() + most
        while set(names).intersection(self._at_others()) and clock.elapsed() < until:
            pause(_LOOK_AGAIN_SECONDS)
        with self._state.transaction():
            current = self._service.current(self._target)
            left = [name for name in names if current is not None and name in current.names]
            self._giving_back.start(left, this_process())
        return left

    def _send(self, names: Sequence[str]) -> None:
        if not names:
            return
        uncertain, claim_key = list(names), claim_key_of(self._handle)
        try:
            with self._service.withholding() as remarks:
                told = 0
                for name in self._backend.release(claim_key, names, by=self._target.by):
                    uncertain.remove(name)
                    if self._settle(name, remarks[told:]):
                        del remarks[told:]  # it is missing because that process released it
                    told = len(remarks)
                uncertain = []  # a missing lease is a certain outcome too
        finally:
            # Names that couldn't be released stay in the record; no request of ours is on its way.
            with self._state.transaction():
                self._giving_back.stopped(names, this_process())
                if not kind_of_handle(self._handle).releases_by_name:  # can't hit another lease
                    self._giving_back.given_up(uncertain, this_process())

    def _settle(self, name: str, remarks: Sequence[str]) -> bool:
        """Record that a name is no longer leased; return whether another process released it.

        Args:
            name: Of the resource.
            remarks: What the backend has warned of as it released the name.
        """
        from leasectl.backends.release_tries import Unaccounted

        with self._state.transaction():
            # If another process releases it, or was killed meanwhile, its request was carried out.
            others = set(self._giving_back.processes(name)) - {this_process()}
            is_unaccounted = not others and any(isinstance(each, Unaccounted) for each in remarks)
            self._giving_back.settled(name, this_process())
            current = self._service.current(self._target)
            if current is not None and name in current.names:
                tell = self._events.not_released if is_unaccounted else self._events.released
                tell(current, [name], by=self._target.by)
                self._handles.returned(current, name)
                self._settled.add(name)
            by_another = name not in self._settled or bool(self._giving_back.processes(name))
        # Only the server knew whether an adopted name was leased at all.
        was_leased = by_another or not remarks or self._handle.adopted_claim is None
        if name in self._settled and was_leased and not is_unaccounted:
            self._released.add(name)
        return by_another

    def _record_what_is_over(self, tried_before: frozenset[str]) -> None:
        """Drop names from the record that the server didn't have.

        Names that another process has released are left to it: it is about to record that.

        Args:
            tried_before: Names whose release was tried before, with an unknown outcome.
        """
        with self._state.transaction():
            current = self._service.current(self._target)
            if current is None:
                return
            over = [name for name in current.names if name in self._names and self._is_over(name)]
            if over or not current.names:
                given_back = [name for name in over if name in tried_before]
                gone = [name for name in over if name not in tried_before]
                self._events.released(current, given_back, by=self._target.by)
                self._events.lost(current, gone, reason=IS_GONE)
                is_given_up = current.state == "acquiring" and len(over) == len(current.names)
                if is_given_up and current.waiter != this_process():
                    from leasectl.engines.rules.events import WAITER_DIED

                    self._events.gave_up(current, WAITER_DIED)
                lost = False
                if gone:
                    from leasectl.state.uses import Uses

                    # Names that were ready to be taken back aren't lost.
                    lost = not Uses(self._state).ready(current).issuperset(gone)
                self._handles.drop(current, over, now=self._service.clock.elapsed(), lost=lost)

    def _is_over(self, name: str) -> bool:
        self._giving_back.settled(name, this_process())
        return not self._giving_back.processes(name)

    def _disown(self) -> None:
        """Forget an adopted handle, unless the keeper will release it."""
        with self._state.transaction():
            handle = self._service.current(self._target)
            if handle is not None and handle.release_at is None:
                self._handles.forget(handle.id, handle.acquisition)


def _may_have_more(handle: Handle) -> bool:
    """Return whether the server may have granted something that the record doesn't have.

    An answer was lost, or the acquiring process was killed, perhaps while the answer was on its
    way. A living process that acquires undoes its own request.
    """
    killed = handle.state == "acquiring" and handle.waiter is not None
    return bool(handle.lost_replies or killed) and handle.waiter != this_process()


def is_acquired_by_another(handle: Handle) -> bool:
    """Return whether another living process is acquiring a handle right now."""
    waiter = handle.waiter
    alive = waiter is not None and not is_dead(waiter)
    return handle.state == "acquiring" and alive and waiter != this_process()


def arm(
    service: Service,
    target: ReleaseTarget,
    delay_seconds: float,
    *,
    between: tuple[float, float] | None = None,
    again: bool = True,
) -> bool:
    """Tell the keeper to release later; this replaces an earlier delayed release of the same.

    Nothing happens if the handle no longer holds the target's leases.

    Args:
        service: On the state directory of its handle.
        target: What to release.
        delay_seconds: How long from now.
        between: The range that the delay was drawn from; None for a fixed delay.
        again: A `reacquire` of the whole handle arms it again.

    Returns:
        Whether it was armed.

    Raises:
        LeaseError: It can't be recorded, or no keeper can be started; nothing has changed.
    """
    if service.current(target) is None:
        return False
    keeper_process.ensure(service.state)
    with service.state.transaction():
        handle = service.current(target)
        if handle is None:
            return False
        due = service.clock.elapsed() + delay_seconds
        if target.names is None and again:
            remember_release_after(service.state, handle, delay_seconds, between)
        service.handles.timers.arm(target, due)
        keeper_process.wake(service.state)
    return True


def leave_failed(service: Service, target: ReleaseTarget, error: BackendUnreachable) -> None:
    """Let the keeper go on with a failed release, if it would otherwise renew the leases.

    If not, the lease ends by itself, or the user has to release it again.

    Args:
        service: On the state directory of its handle.
        target: What is to be released.
        error: Of the release; its text then says so.
    """
    handle = service.current(target)
    if handle is not None and renews_itself(handle) and arm(service, target, 0.0, again=False):
        error.args = (followed_by(error, "the keeper keeps trying to release it"),)


def release_each(
    service: Service,
    targets: Iterable[ReleaseTarget],
    *,
    tell: Callable[[tuple[str, ...]], object],
    failed: LeaseError | None = None,
) -> None:
    """Release several targets, as many as can be.

    Args:
        service: On the state directory of their handles.
        targets: What to release.
        tell: Called with the names that each release has released.
        failed: An error of before, which is raised in the end.

    Raises:
        LeaseError: The first error, after all targets were tried. The keeper goes on with leases on
            a server that doesn't answer, if it would otherwise renew them.
    """
    for target in targets:
        try:
            tell(release(service, target))
        except LeaseError as error:
            if isinstance(error, BackendUnreachable):
                tell(error.released)
                leave_failed(service, target, error)
            failed = failed or error
    if failed is not None:
        raise failed
