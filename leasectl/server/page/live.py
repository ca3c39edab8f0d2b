"""Look at the pools once a second while a browser shows the page.

A thread of its own does this, so that no lease waits for it. It renders once for all viewers; the
event loop only passes that on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leasectl.server.page.editions import Body, Editions
from leasectl.server.page.view import View

Result = TypeVar("Result")

# Between two looks at least, and from a change to the next look at most.
_PAUSE_SECONDS = 1.0
# What nobody tells of shows after so long: a suspended waiter in etcd, the end of a step of time.
_LOOK_AGAIN_SECONDS = 30.0
# As long as a backend doesn't answer.
_TRY_AGAIN_SECONDS = 5.0
# Who has got news asks for the next at once; whoever hasn't after so long, is gone.
_ANOTHER_SECONDS = 5.0
# A request isn't kept waiting for longer, as proxies give up on it after a minute.
_WAIT_SECONDS = 50.0
# Pages that are kept waiting at once; each takes a connection from those who wait for leases.
MOST_PAGES = 200


class TooMany(Exception):
    """Too many wait already."""


class Live:
    """What the pages that are open show.

    Args:
        editions: What makes that.
        now: The clock, in seconds.
    """

    def __init__(self, editions: Editions, *, now: Callable[[], float]) -> None:
        self._editions = editions
        self._now = now
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self._name = ""
        self._has_problem = False
        self._looked_at = float("-inf")
        self._looking: asyncio.Future[None] | None = None
        self._waiting = 0
        self._asked_at = float("-inf")
        self._following: asyncio.Task[None] | None = None
        self._stirred = False
        self._sleeping: set[asyncio.Future[None]] = set()
        self._is_closing = False

    async def whole(self, view: View) -> Body:
        """The whole page, as it is now."""
        if self._now() - self._looked_at >= _PAUSE_SECONDS:
            await self._look()
        return await self._run(lambda: self._editions.whole(view))

    async def news(self, after: str, view: View, gone: asyncio.Future[None]) -> Body | None:
        """Wait until there is something new to a page.

        Args:
            after: The name of the edition that it shows.
            view: What it shows of it.
            gone: Done when the client no longer waits.

        Returns:
            None when there was nothing for a while, or the client is gone.

        Raises:
            TooMany: Too many wait already.
        """
        if self._waiting >= MOST_PAGES:
            raise TooMany
        self._waiting += 1
        try:
            self._follow()
            if after == self._name and not self._is_closing:
                await self._sleep(_WAIT_SECONDS, gone)
        finally:
            self._waiting -= 1
            self._asked_at = self._now()
        if after == self._name or gone.done() or self._is_closing:
            return None
        return await self._run(lambda: self._editions.news(after, view))

    def end(self) -> None:
        """End all waits."""
        self._is_closing = True
        self._wake()

    async def close(self) -> None:
        """Close what was opened."""
        self.end()
        if self._following is not None:
            await asyncio.wait((self._following,))
        await self._run(self._editions.close)
        self._thread.shutdown(wait=False)

    async def _sleep(self, seconds: float, *others: asyncio.Future[None]) -> None:
        """Sleep until there is another edition, or one of the others is done, or it ends."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.add(woken)
        try:
            await asyncio.wait(
                (woken, *others), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self._sleeping.discard(woken)

    def _wake(self) -> None:
        for each in self._sleeping:
            if not each.done():
                each.set_result(None)

    # ---- looking

    def _follow(self) -> None:
        if self._following is None and not self._is_closing:
            self._following = asyncio.ensure_future(self._go_on_looking())

    async def _go_on_looking(self) -> None:
        """Look after each change, until the last page is closed."""
        loop, fd = asyncio.get_running_loop(), None
        try:
            while self._is_watched():
                if fd is None:
                    fd = await self._run(self._editions.listen)
                await self._look()
                if fd is not None:
                    loop.add_reader(fd, self._stir, fd)
                await self._until_changed()
        finally:
            self._following = None
            if fd is not None:
                loop.remove_reader(fd)
            await self._run(self._editions.stop_listening)

    def _stir(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)  # it stays readable until the next look
        self._stirred = True

    def _is_watched(self) -> bool:
        is_open = self._waiting > 0 or self._now() - self._asked_at < _ANOTHER_SECONDS
        return is_open and not self._is_closing

    async def _until_changed(self) -> None:
        look_at = self._now() + (_TRY_AGAIN_SECONDS if self._has_problem else _LOOK_AGAIN_SECONDS)
        while self._is_watched() and self._now() < look_at:
            await self._sleep(_PAUSE_SECONDS)
            if self._stirred or await self._run(self._editions.has_changed):
                return

    async def _look(self) -> None:
        """Look once; concurrent callers share the result."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_once())
        await asyncio.shield(self._looking)

    async def _look_once(self) -> None:
        self._stirred = False
        edition = await self._run(self._editions.look)
        self._looked_at = self._now()
        self._has_problem = bool(edition.problem)
        if edition.name != self._name:
            self._name = edition.name
            self._wake()

    async def _run(self, step: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)
