"""Leases that went away without having been given back: what that means for their handles."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.kinds import claim_key_of, kind_of_handle, release_key_of
from leasectl.model import Handle
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead


class Losses:
    """Keeps the handles of one state directory in step with what was lost.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._handles = Handles(state)
        self._clock = clock

    def tell(self, owner: str, names: Sequence[str]) -> None:
        """Told by a store of claims that went away, and of tickets of the dead."""
        with self._state.transaction():
            handle = self._handles.load(owner.partition("/")[0])
            if handle is None or claim_key_of(handle) != owner:
                return  # of another state directory, or an earlier acquisition
            if handle.state == "held":
                self._drop_lost(handle, names)
            elif handle.state == "acquiring" and not kind_of_handle(handle).remote:
                self._forget_dead_waiter(handle)

    def note_gone(self, handle: Handle, names: Sequence[str]) -> None:
        """Note, in a transaction, that a handle doesn't hold some names any more.

        They have been lost, unless they are just being given back.
        """
        from leasectl.state.releasing import GivingBack

        giving_back = GivingBack(self._state, release_key_of(handle))
        releasing = {name: giving_back.processes(name) for name in names}
        self._drop_lost(handle, [name for name in names if not releasing[name]])
        left = self._handles.current(handle.id, handle.acquisition)
        returned = [
            name for name in names if releasing[name] and all(map(is_dead, releasing[name]))
        ]
        if left is not None and returned:
            self._handles.drop(left, returned, now=self._clock.elapsed())

    def _drop_lost(self, handle: Handle, names: Sequence[str]) -> None:
        if names:
            self._handles.drop(handle, names, now=self._clock.elapsed(), lost=True)
            self._state.wake(self._state.runner_pipe(handle.id))

    def _forget_dead_waiter(self, handle: Handle) -> None:
        if handle.acquisition == 1:
            self._handles.forget(handle.id, 1)  # nobody has ever heard of it
        else:
            self._handles.release(handle, now=self._clock.elapsed())
