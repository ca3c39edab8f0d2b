"""Waits for events, when the store fails or is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from leasectl.errors import BackendUnreachable, Cancelled
from leasectl.server import news
from leasectl.server.metrics import Notices
from leasectl.server.news import EventNews
from leasectl.state.event import Event
from leasectl.system.wakeup import Wakeup


class _Store:
    """A log of events, and steps of a service on it; the next step can be held up or fail."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.failing: list[str] = []
        self.held_up: asyncio.Event | None = None
        self.watch_ = Wakeup()
        self.told: list[str] = []

    @property
    def events(self) -> _Store:
        return self

    def watch(self) -> Wakeup:
        self.watch_ = Wakeup()
        return self.watch_

    def last_number(self) -> int:
        self._fail("last_number")
        return len(self.log)

    def read(self, after: int) -> list[Event]:
        self._fail("read")
        return self.log[after:]

    def _fail(self, call: str) -> None:
        if call in self.failing:
            self.failing.remove(call)
            raise BackendUnreachable("away")

    def write(self, handle: str) -> None:
        self.log.append(Event(len(self.log) + 1, 0.0, "noted", "T", handle=handle))
        self.watch_.set()

    async def do(self, step: Callable[[Any], Any]) -> Any:
        result = step(self)
        held_up, self.held_up = self.held_up, None
        await (held_up.wait() if held_up else asyncio.sleep(0))
        return result

    def failed(self, what: str, error: Exception) -> None:
        self.told.append(what)


Told = Callable[[int, str], "asyncio.Task[tuple[int, Sequence[Event] | None]]"]


def _in_loop(check: Callable[[_Store, EventNews, Told], Any]) -> None:
    async def run() -> None:
        store = _Store()
        waiting = EventNews(store.do, cast("Notices", store))
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(after: int, handle: str) -> asyncio.Task[tuple[int, Sequence[Event] | None]]:
            return asyncio.ensure_future(waiting.wait(after, handle, seconds=20, gone=gone))

        await check(store, waiting, told)
        waiting.close()

    asyncio.run(run())


async def _until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_wait_after_one_that_failed_hears_of_events() -> None:
    async def check(store: _Store, waiting: EventNews, told: Told) -> None:
        store.failing = ["last_number"]
        with pytest.raises(BackendUnreachable):
            await told(0, "h")
        task = told(0, "h")
        await _until(lambda: waiting._waiting)
        store.write("h")
        assert await task == (1, store.log)

    _in_loop(check)


@pytest.mark.parametrize(("first", "last"), [("other", 2), ("h", 1)])
def test_no_event_is_passed_over_that_comes_during_a_look(first: str, last: int) -> None:
    async def check(store: _Store, waiting: EventNews, told: Told) -> None:
        store.write(first)
        await waiting._open()
        looked = store.held_up = asyncio.Event()
        task = told(0, "h")
        await _until(lambda: store.held_up is None)
        store.write("h")
        await _until(lambda: waiting.last == 2)
        looked.set()
        assert await task == (last, store.log[last - 1 : last])

    _in_loop(check)


def test_close_ends_waits_and_refuses_new_ones() -> None:
    async def check(_: _Store, waiting: EventNews, told: Told) -> None:
        task = told(0, "h")
        await _until(lambda: waiting._waiting)
        waiting.close()
        for each in (task, told(0, "h")):
            with pytest.raises(Cancelled):
                await asyncio.wait_for(each, 10)

    _in_loop(check)


def test_a_look_that_failed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "_AGAIN_SECONDS", 0.01)

    async def check(store: _Store, waiting: EventNews, told: Told) -> None:
        task = told(0, "h")
        await _until(lambda: waiting._waiting)
        store.failing = ["read"]
        store.write("h")
        assert await task == (1, store.log)
        assert store.told == ["reading events"]

    _in_loop(check)
