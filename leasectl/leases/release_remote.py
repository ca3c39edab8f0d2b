"""Release on a server, where release and record aren't one transaction.

A release is on record from before it is sent until its outcome is certain: if the name is granted
again meanwhile, the release could still hit the new grant. If several processes release the same
lease at once, the one that finds it in the record in the end has released it. Where the server is
told only a name, only one of them may ask: as a command of `run` ends, its keeper may release too,
and a second request could hit the next holder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.backends.kinds import Backend, claim_key_of, kind_of_handle, release_key_of
from leasectl.backends.release_tries import SLOW_ANSWER_SECONDS, Unaccounted
from leasectl.errors import BackendUnreachable
from leasectl.leases.record_events import IS_GONE, RecordEvents
from leasectl.leases.service import Service, unlist
from leasectl.model import Handle, Process, ReleaseTarget
from leasectl.state.timers import GivingBack
from leasectl.system.process import is_dead, this_process
from leasectl.system.signals import pause

_LOOK_AGAIN_SECONDS = 0.01


def release_remote(
    service: Service, backend: Backend, handle: Handle, target: ReleaseTarget
) -> tuple[str, ...]:
    """Release, name by name; take released names out of the list of scope ``test``.

    An adopted handle that can't be given back is forgotten: no process here has leased it.

    Args:
        service: On the state directory of the handle.
        backend: The handle's.
        handle: As just loaded.
        target: The names that are meant.

    Returns:
        The names that this call has released.

    Raises:
        BackendUnreachable: Some couldn't be released; they stay in the record. Its `released` has
            the others.
    """
    giving_back = _Release(service, backend, handle, target)
    try:
        return giving_back.carry_out()
    except BackendUnreachable:
        if handle.adopted_claim is not None:
            from leasectl.leases.targets import disown

            disown(service, target)
        raise
    finally:
        unlist(service, handle, giving_back.settled)


class _Release:
    """One release, from the record through the server back to the record.

    Attributes:
        settled: The names that have left the record by this release.
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
        self._tried_before: frozenset[str] = frozenset()  # with an unknown outcome
        self.settled: list[str] = []

    def carry_out(self) -> tuple[str, ...]:
        released = self._release_current()
        if released is None:
            self._give_up_lost()
            return ()
        return released

    def _release_current(self) -> tuple[str, ...] | None:
        """Release the target's names; return None if they were released already."""
        with self._state.transaction():
            handle = self._service.current(self._target)
            if handle is None:
                return None
            cancels = is_acquired_by_another(handle)
            names = handle.names if self._target.names is None else self._target.names
            others = frozenset() if cancels else self._at_others(names)
            mine = [name for name in names if name not in others]
            self._tried_before = frozenset(filter(self._giving_back.processes, names))
            if cancels:
                self._handles.cancel(handle)
            else:
                self._giving_back.start(mine, this_process())
        if cancels:
            from leasectl.engines.rules.events import why_withdrawn

            with contextlib.suppress(BackendUnreachable):  # the waiter was woken here as well
                self._backend.withdraw(claim_key_of(handle), why_withdrawn(self._target.by))
            return ()
        released = self._send(mine) if mine else ()
        if others:
            released += self._send_for_others([name for name in names if name in others])
        if self._target.names is None and (handle.lost or _may_have_more(handle)):
            try:
                list(self._backend.release(claim_key_of(handle), (), by=self._target.by))
            except BackendUnreachable as error:
                error.released = released
                raise
        self._record_what_is_over(names)
        return released

    def _give_up_lost(self) -> None:
        """Tell a pool to free the leases that a released handle has lost.

        A claim that ended early isn't granted again while its holder may not know of the end. A
        holder that releases does know. If the pool can't be told now, the claims end by themselves
        within a ttl. The record is read once more, since the keeper may have found the loss by now.
        """
        target = self._target
        handle = self._handles.load(target.handle_id)
        if handle is None or not handle.lost or handle.acquisition != target.acquisition:
            return
        if handle.state == "released" and target.names is None and kind_of_handle(handle).has_pools:
            with contextlib.suppress(BackendUnreachable):
                list(self._backend.release(claim_key_of(handle), (), by=self._target.by))

    def _at_others(self, names: Sequence[str]) -> frozenset[str]:
        """Return the names that another process is releasing, where only one may ask the server."""
        if not kind_of_handle(self._handle).releases_by_name:
            return frozenset()

        def is_other(process: Process) -> bool:
            return process != this_process() and not is_dead(process)

        return frozenset(
            name for name in names if any(map(is_other, self._giving_back.processes(name)))
        )

    def _send_for_others(self, names: Sequence[str]) -> tuple[str, ...]:
        """Release names that other processes were releasing, once those gave up or are too slow."""
        seconds, clock = self._service.context.release_seconds, self._service.clock
        most = SLOW_ANSWER_SECONDS if seconds is None else min(seconds, SLOW_ANSWER_SECONDS)
        until = clock.elapsed() + most
        while self._at_others(names) and clock.elapsed() < until:
            pause(_LOOK_AGAIN_SECONDS)
        with self._state.transaction():
            current = self._service.current(self._target)
            left = [name for name in names if current is not None and name in current.names]
            self._giving_back.start(left, this_process())
        return self._send(left) if left else ()

    def _send(self, names: Sequence[str]) -> tuple[str, ...]:
        released: set[str] = set()
        uncertain = list(names)

        def in_order() -> tuple[str, ...]:
            return tuple(name for name in names if name in released)

        try:
            claim_key, by = claim_key_of(self._handle), self._target.by
            told = 0
            with self._service.withholding() as remarks:
                for name in self._backend.release(claim_key, names, by=by):
                    uncertain.remove(name)
                    with self._state.transaction():
                        # If another process releases it, or was killed meanwhile, its request was
                        # carried out.
                        others = set(self._giving_back.processes(name)) - {this_process()}
                        is_unaccounted = not others and _has_unaccounted(remarks[told:])
                        self._giving_back.settled(name, this_process())
                        current = self._service.current(self._target)
                        if current is not None and name in current.names:
                            tell = self._events.released
                            if is_unaccounted:
                                tell = self._events.not_released
                            tell(current, [name], by=by)
                            self._handles.returned(current, name)
                            self.settled.append(name)
                        by_another = name not in self.settled or self._giving_back.processes(name)
                    if by_another:
                        del remarks[told:]  # it is missing because that process released it
                    # Only the server knew whether an adopted name was leased at all.
                    was_leased = self._handle.adopted_claim is None or len(remarks) == told
                    if name in self.settled and was_leased and not is_unaccounted:
                        released.add(name)
                    told = len(remarks)
                uncertain = []  # a missing lease is a certain outcome too
        except BackendUnreachable as error:
            error.released = in_order()
            raise
        finally:
            # Names that couldn't be released stay in the record; no request of ours is on its way.
            with self._state.transaction():
                self._giving_back.stopped(names, this_process())
                if not kind_of_handle(self._handle).releases_by_name:  # can't hit another lease
                    self._giving_back.given_up(uncertain, this_process())
        return in_order()

    def _record_what_is_over(self, names: Sequence[str]) -> None:
        """Drop names from the record that the server didn't have.

        Names that another process has released are left to it: it is about to record that.
        """
        with self._state.transaction():
            current = self._service.current(self._target)
            if current is None:
                return
            over = [name for name in current.names if name in names and self._is_over(name)]
            if over or not current.names:
                now = self._service.clock.elapsed()
                # A release of these was tried before, and it may have worked.
                given_back = [name for name in over if name in self._tried_before]
                gone = [name for name in over if name not in self._tried_before]
                self._events.released(current, given_back, by=self._target.by)
                self._events.lost(current, gone, reason=IS_GONE)
                if current.state == "acquiring" and len(over) == len(current.names):
                    self._note_death(current)
                lost = bool(frozenset(gone) - self._ready(current, gone))
                self._handles.drop(current, over, now=now, lost=lost)

    def _ready(self, handle: Handle, names: Sequence[str]) -> frozenset[str]:
        """Return the names that were ready to be taken back, so they aren't lost."""
        if not names:
            return frozenset()
        from leasectl.state.uses import Uses

        return Uses(self._state).ready(handle)

    def _note_death(self, handle: Handle) -> None:
        """Record that a killed acquirer has given up."""
        if handle.waiter != this_process():
            from leasectl.engines.rules.events import WAITER_DIED

            self._events.gave_up(handle, WAITER_DIED)

    def _is_over(self, name: str) -> bool:
        self._giving_back.settled(name, this_process())
        return not self._giving_back.processes(name)


def _may_have_more(handle: Handle) -> bool:
    """Return whether the server may have granted something that the record doesn't have.

    An answer was lost, or the acquiring process was killed, perhaps while the answer was on its
    way. A living process that acquires undoes its own request.
    """
    killed = handle.state == "acquiring" and handle.waiter is not None
    return bool(handle.lost_replies or killed) and handle.waiter != this_process()


def _has_unaccounted(remarks: Sequence[str]) -> bool:
    if not remarks:
        return False

    return any(isinstance(each, Unaccounted) for each in remarks)


def is_acquired_by_another(handle: Handle) -> bool:
    """Return whether another living process is acquiring a handle right now."""
    waiter = handle.waiter
    alive = waiter is not None and not is_dead(waiter)
    return handle.state == "acquiring" and alive and waiter != this_process()
