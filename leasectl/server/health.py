"""Whether the server works: its records can be read, and its backend does what leases need."""

from __future__ import annotations

import asyncio

from leasectl.state.directory import State
from leasectl.state.soundness import check_readable
from leasectl.typed.hints import Callable


class Health:
    """The server's health, to be asked for in its event loop.

    Args:
        state: The state directory.
        probe: As `open_probe` makes it. It runs in a thread, as it takes long just when others
            are to be served meanwhile.
    """

    def __init__(self, state: State, probe: Callable[[], None] | None) -> None:
        self._state = state
        self._probe = probe
        self._probing: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Find out how it is. Whoever asks while a probe is under way shares what comes of it.

        Raises:
            LeaseError: It doesn't work.
        """
        check_readable(self._state)
        if self._probe is None:
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(asyncio.to_thread(self._probe))
        await asyncio.wait((self._probing,))
        self._probing.result()
