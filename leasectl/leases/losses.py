"""Leases that went away without having been given back: what that means for their handles.

They are lost, but for those that were ready to be taken back, as `leasectl.leases.marks` has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.backends.kinds import claim_key_of, kind_of_handle, release_key_of
from leasectl.errors import LeaseError
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
        self._to_unlist: list[tuple[str, frozenset[str]]] = []

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

        They have been lost, unless they are just being given back, or somebody has tried that and
        doesn't know what came of it.
        """
        from leasectl.state.releasing import GivingBack

        names = [name for name in names if name in handle.names]  # others may have noticed first
        giving_back = GivingBack(self._state, release_key_of(handle))
        releasing = {name: giving_back.processes(name) for name in names}
        self._drop_lost(handle, [name for name in names if not releasing[name]])
        left = self._handles.current(handle.id, handle.acquisition)
        returned = [
            name for name in names if releasing[name] and all(map(is_dead, releasing[name]))
        ]
        giving_back.forget_dead(returned)
        if left is None or not returned:
            return
        if left.lost_reason:  # somebody has taken it by force meanwhile, as is on record already
            self._drop_lost(left, returned)
            return
        from leasectl.leases.record_events import RecordEvents

        RecordEvents(self._state, self._clock).released(left, returned, by="command")
        self._handles.drop(left, returned, now=self._clock.elapsed())

    def note_there(self, handle: Handle, names: Sequence[str]) -> None:
        """Note, in a transaction, that a handle holds some names still, as its server says.

        What somebody has tried to give back, and nobody knew whether that worked, is lost if it
        goes away after all.
        """
        if kind_of_handle(handle).remote:
            from leasectl.state.releasing import GivingBack

            GivingBack(self._state, release_key_of(handle)).forget_dead(names)

    def unlist(self) -> None:
        """Take what was taken back out of its list of scope ``test``; outside of a transaction."""
        while self._to_unlist and not self._state.is_changing:
            self._unlist(*self._to_unlist.pop())

    def _unlist(self, shared_dir: str, names: frozenset[str]) -> None:
        from leasectl.state import shared_leases

        def is_held(name: str) -> bool:
            holder = self._handles.holding(name, prefer=lambda _: True)
            return holder is not None and holder.shared_dir == shared_dir

        with contextlib.suppress(LeaseError):  # it is known then to be out of date
            shared_leases.remove(shared_dir, names, unless=is_held)

    def _drop_lost(self, handle: Handle, names: Sequence[str]) -> None:
        if not names:
            return
        taken_back = self._drop_taken_back(handle, names)
        names = [name for name in names if name not in taken_back]
        left = self._handles.current(handle.id, handle.acquisition) if taken_back else handle
        if names and left is not None:
            self._note_event(left, names)
            self._handles.drop(left, names, now=self._clock.elapsed(), lost=True)
        self._state.wake(self._state.runner_pipe(handle.id))

    def _note_event(self, handle: Handle, names: Sequence[str]) -> None:
        """Tell of it where nobody else does: that the leases ended, no pool of ours has seen."""
        kind = kind_of_handle(handle)
        if kind.remote and not kind.has_pools:
            from leasectl.leases.record_events import IS_GONE, RecordEvents

            RecordEvents(self._state, self._clock).lost(handle, names, reason=IS_GONE)

    def _drop_taken_back(self, handle: Handle, names: Sequence[str]) -> frozenset[str]:
        """Drop what was ready to be taken back, which is no loss; returns which."""
        from leasectl.state.uses import Uses

        taken_back = Uses(self._state).ready(handle).intersection(names)
        if taken_back:
            self._handles.drop(handle, sorted(taken_back), now=self._clock.elapsed())
            self._to_unlist += [(handle.shared_dir, taken_back)] if handle.shared_dir else []
        return taken_back

    def _forget_dead_waiter(self, handle: Handle) -> None:
        if handle.acquisition == 1:
            self._handles.forget(handle.id, 1)  # nobody has ever heard of it
        else:
            self._handles.release(handle, now=self._clock.elapsed())
