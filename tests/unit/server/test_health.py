"""The server's health: what is asked, and that nobody waits for it who needn't."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.server.responses import Health
from leasectl.state.directory import State
from tests.kit.waits import wait_set


@pytest.fixture
def health_of(state_dir: Path) -> Iterator[Callable[[Callable[[], None] | None], Health]]:
    """The health of a server with such a probe."""
    state = State.open(str(state_dir))
    yield lambda probe: Health(state, probe)
    state.close()


def test_without_a_probe_its_records_will_do(health_of: Callable[..., Health]) -> None:
    asyncio.run(health_of(None).check())


def test_a_probe_that_hangs_holds_up_nobody_and_is_not_doubled(
    health_of: Callable[..., Health],
) -> None:
    probes: list[int] = []
    answer = threading.Event()

    def probe() -> None:
        probes.append(len(probes))
        wait_set(answer)  # the event loop is free to let it answer

    async def ask() -> None:
        health = health_of(probe)
        checks = [asyncio.ensure_future(health.check()) for _ in range(3)]
        while not probes:
            await asyncio.sleep(0)
        checks.append(asyncio.ensure_future(health.check()))
        await asyncio.sleep(0)
        answer.set()
        await asyncio.gather(*checks)
        assert len(probes) == 1
        await health.check()
        assert len(probes) == 2

    asyncio.run(ask())


def test_all_who_ask_learn_of_a_failure_and_who_asks_later_of_the_end_of_it(
    health_of: Callable[..., Health],
) -> None:
    answers = [BackendUnreachable("no answer"), None]

    def probe() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    async def ask() -> None:
        health = health_of(probe)
        found = await asyncio.gather(health.check(), health.check(), return_exceptions=True)
        assert [str(each) for each in found] == ["no answer"] * 2
        await health.check()

    asyncio.run(ask())
