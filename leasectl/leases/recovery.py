"""What the dead have left: finding it, and giving it back."""

from __future__ import annotations

import contextlib
from typing import Callable

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.pipes import tidy
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead


class Recovery:
    """Looks after the handles of one state directory.

    Args:
        state: The opened state directory.
        release: Gives back what a target means.
        clock: Where times come from.
    """

    def __init__(
        self, state: State, release: Callable[[ReleaseTarget], object], *, clock: Clock
    ) -> None:
        self._state = state
        self._handles = Handles(state)
        self._release = release
        self._clock = clock

    def run(self) -> None:
        """Put right what killed processes left, unless the keeper is at it already.

        What can't be put right now is no failure of the command that happened to look; it is
        tried again by the next, and by the keeper. A server may be slow or gone: what lives on one
        is left to the keeper.
        """
        with contextlib.suppress(LeaseError):
            self._release_abandoned(self._handles.unannounced())
            if keeper_process.running(self._state) is not None:
                return
            if not self._handles.any_watched():
                keeper_process.remove_dead(self._state)
                return
            with contextlib.suppress(LeaseError):
                for target in self.due():
                    handle = self._handles.require(target.handle_id)
                    if kind_of_handle(handle).shares_transaction:
                        self._release(target)
            if self._handles.any_watched():
                keeper_process.ensure(self._state)

    def release_abandoned(self) -> None:
        """Put right what the dead have left, also beside a keeper, but not what is on a server.

        Raises:
            LeaseError: It couldn't be given back.
        """
        self.run()
        tidy(self._state)
        self._release_abandoned(self._handles.active())

    def _release_abandoned(self, handles: list[Handle]) -> None:
        for handle in handles:
            if self.is_abandoned(handle) and kind_of_handle(handle).shares_transaction:
                self._release(whole(handle))

    def is_abandoned(self, handle: Handle) -> bool:
        """Tell whether nobody is left who could use what a handle holds or waits for.

        A command that has told of its grant ends a moment later, perhaps just between the reading
        of the record and the look at the process. So what the record says of a dead process
        counts only if it still says so afterwards.
        """
        if is_dead(handle.guard):
            return True
        if not is_dead(handle.waiter):
            return False
        current = self._handles.current(handle.id, handle.acquisition)
        return current is not None and current.waiter == handle.waiter

    def due(self) -> list[ReleaseTarget]:
        """What the keeper has to release now: for the dead, and because its time has come."""
        abandoned = [whole(each) for each in self._handles.watched() if self.is_abandoned(each)]
        now = self._clock.elapsed()
        return abandoned + [
            ReleaseTarget(handle_id, acquisition, (name,) if name else None)
            for handle_id, name, acquisition, due in self._handles.timers()
            if due <= now
        ]
