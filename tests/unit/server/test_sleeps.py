"""Naps slept in an event loop: the same as in a process of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator

import pytest

from leasectl.server.sleeps import sleep_through_async
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import Sleep, sleep_through

Steps = Generator[Sleep, "set[int]", "list[set[int]]"]


@pytest.fixture
def pipes() -> Generator[tuple[int, int], None, None]:
    """The reading ends of two pipes, of which the first has something to read."""
    (first, write), (second, keep) = os.pipe(), os.pipe()
    os.write(write, b"x")
    yield first, second
    for fd in (first, write, second, keep):
        os.close(fd)


def steps(*sleeps: Sleep) -> Steps:
    woken = []
    for wanted in sleeps:
        woken.append((yield wanted))
    return woken


def test_they_end_as_they_do_in_a_process_of_their_own(pipes: tuple[int, int]) -> None:
    ready, silent = pipes
    now = boottime_seconds()
    sleeps = (
        Sleep(frozenset((ready, silent)), None),
        Sleep(frozenset((silent,)), now),
        Sleep(frozenset(), now + 0.01),
        Sleep(frozenset((ready,)), now + 3600),
    )
    expected = [{ready}, set(), set(), {ready}]
    assert asyncio.run(sleep_through_async(steps(*sleeps), now=boottime_seconds)) == expected
    assert sleep_through(steps(*sleeps), interrupts=(), now=boottime_seconds) == expected


def test_without_naps_it_ends_at_once() -> None:
    assert asyncio.run(sleep_through_async(steps(), now=boottime_seconds)) == []


def test_a_cancelled_one_puts_everything_right_first(pipes: tuple[int, int]) -> None:
    seen: list[str] = []

    def wait() -> Steps:
        try:
            return (yield from steps(Sleep(frozenset(pipes[1:]), None)))
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async def cancel() -> bool:
        task = asyncio.ensure_future(sleep_through_async(wait(), now=boottime_seconds))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        return task.cancelled()

    assert asyncio.run(cancel())
    assert seen == ["CancelledError"]


def test_an_error_of_what_waits_comes_out() -> None:
    def fail() -> Steps:
        yield Sleep(frozenset(), boottime_seconds())
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        asyncio.run(sleep_through_async(fail(), now=boottime_seconds))
