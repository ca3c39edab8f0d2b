"""Sleep in the event loop, and follow events there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

from leasectl.engines.pool_admin import EventWatch
from leasectl.system.poll import Sleep

Result = TypeVar("Result")

# asyncio counts on a clock that stops in suspend; a longer sleep is cut into such pieces.
_LONGEST_SLEEP_SECONDS = 3600.0


async def sleep_through_async(
    steps: Generator[Sleep, set[int], Result], *, now: Callable[[], float]
) -> Result:
    """Do the sleeps of a generator one after the other: `sleep_through` as a coroutine.

    Cancelling it throws CancelledError into the generator, which puts everything right before
    the cancellation goes on.

    Args:
        steps: What waits.
        now: The clock, in seconds.

    Returns:
        What the generator returns.
    """
    try:
        wanted = next(steps)
        while True:
            try:
                woken = await _wait_in_loop(wanted, now)
            except BaseException as reason:
                wanted = steps.throw(reason)
            else:
                wanted = steps.send(woken)
    except StopIteration as end:
        result: Result = end.value
        return result


async def _wait_in_loop(wanted: Sleep, now: Callable[[], float]) -> set[int]:
    """Sleep until a descriptor has something to say, or the time has come."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    woken: set[int] = set()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def wake(fd: int) -> None:
        woken.add(fd)
        end()

    timer = None
    if wanted.until is not None:
        timer = loop.call_later(min(max(0.0, wanted.until - now()), _LONGEST_SLEEP_SECONDS), end)
    for fd in wanted.fds:
        loop.add_reader(fd, wake, fd)
    try:
        await over
    finally:
        for fd in wanted.fds:
            loop.remove_reader(fd)
        if timer is not None:
            timer.cancel()
    return woken


def follow_events(watch: EventWatch, look: Callable[[], object]) -> Callable[[], None]:
    """Call `look` in the event loop whenever a watch tells of events.

    Returns:
        A function that stops this and closes the watch.
    """
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.remove_reader(watch.fd)  # what is behind the number is about to change
        watch.clear()
        loop.add_reader(watch.fd, wake)
        look()

    def stop() -> None:
        loop.remove_reader(watch.fd)
        watch.close()

    loop.add_reader(watch.fd, wake)
    return stop
