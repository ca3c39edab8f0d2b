"""Giving back leases that live on a server, where release and record can't be one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.backends.contract import Backend
from leasectl.backends.kinds import claim_key_of, kind_of_handle, release_key_of
from leasectl.errors import BackendUnreachable
from leasectl.model import Handle, ReleaseTarget
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.releasing import GivingBack
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead, this_process


class RemoteRelease:
    """Releases by asking the server, name by name.

    A release that is under way is on record from before it is sent until its outcome is certain:
    should the name be granted anew meanwhile, the release could still hit the new grant. Of
    several that release the same lease at once, one finds it in the record in the end, and that
    one has released it.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._handles = Handles(state)
        self._clock = clock

    def __call__(self, backend: Backend, target: ReleaseTarget) -> tuple[str, ...]:
        """Release; returns the names that this call has released.

        Raises:
            BackendUnreachable: Some couldn't be released; they stay in the record. Its `released`
                are those that could.
        """
        self._give_up_lost(backend, target)
        with self._state.transaction():
            handle = self._handles.current(target.handle_id, target.acquisition)
            if handle is None:
                return ()
            cancels = handle.state == "acquiring" and _somebody_else_acquires(handle)
            names = handle.names if target.names is None else target.names
            if cancels:
                self._handles.cancel(handle)
            else:
                self._giving_back(handle).start(names, this_process())
        if cancels:
            with contextlib.suppress(BackendUnreachable):  # it has been woken here as well
                backend.withdraw(claim_key_of(handle))
            return ()
        released = self._send(backend, handle, names) if names else ()
        if target.names is None and _may_have_more(handle):
            list(backend.release(claim_key_of(handle), ()))
        with self._state.transaction():
            current = self._handles.current(target.handle_id, target.acquisition)
            if current is not None:
                wanted = [name for name in current.names if name in names]
                over = [name for name in wanted if self._is_over(handle, name)]
                if over or not current.names:
                    self._handles.drop(current, over, now=self._clock.elapsed(), lost=bool(over))
        return released

    def _give_up_lost(self, backend: Backend, target: ReleaseTarget) -> None:
        """Have a pool keep no longer what a released handle has lost.

        A claim that has ended early isn't granted anew while its holder may not know of the end.
        Whoever releases knows. What can't be asked for now comes by itself, a ttl later at most.
        """
        handle = self._handles.load(target.handle_id)
        if handle is None or not handle.lost or handle.acquisition != target.acquisition:
            return
        if handle.state == "released" and target.names is None and kind_of_handle(handle).has_pools:
            with contextlib.suppress(BackendUnreachable):
                list(backend.release(claim_key_of(handle), ()))

    def _is_over(self, handle: Handle, name: str) -> bool:
        """Tell of a name that wasn't there to be given back whether it had run out; else another
        has given it back and is about to record that."""
        self._giving_back(handle).settled(name, this_process())
        return not self._giving_back(handle).processes(name)

    def _send(self, backend: Backend, handle: Handle, names: Sequence[str]) -> tuple[str, ...]:
        released: set[str] = set()

        def in_order() -> tuple[str, ...]:
            return tuple(name for name in names if name in released)

        try:
            for name in backend.release(claim_key_of(handle), names):
                with self._state.transaction():
                    self._giving_back(handle).settled(name, this_process())
                    current = self._handles.current(handle.id, handle.acquisition)
                    if current is not None and name in current.names:
                        self._handles.returned(current, name)
                        released.add(name)
        except BackendUnreachable as error:
            error.released = in_order()
            raise
        finally:
            # What couldn't be released is in the record; nothing of ours is on its way any more.
            with self._state.transaction():
                self._giving_back(handle).stopped(names, this_process())
        return in_order()

    def _giving_back(self, handle: Handle) -> GivingBack:
        return GivingBack(self._state, release_key_of(handle))


def _may_have_more(handle: Handle) -> bool:
    """Tell whether the server may have granted what the record doesn't know of.

    An answer was lost, or whoever acquired was killed, perhaps while it was on its way. The
    process that acquires has its own way to undo what it asked for.
    """
    killed = handle.state == "acquiring" and handle.waiter is not None
    return bool(handle.lost_replies or killed) and handle.waiter != this_process()


def _somebody_else_acquires(handle: Handle) -> bool:
    waiter = handle.waiter
    alive = waiter is not None and not is_dead(waiter)
    return alive and waiter != this_process()
