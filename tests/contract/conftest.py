"""The worlds that the contract holds in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from tests.contract.local_world import LocalWorld
from tests.contract.memory_world import MemoryWorld
from tests.contract.world import World

WORLDS: dict[str, Callable[[Path], World]] = {
    "memory": lambda folder: MemoryWorld(),
    "local": lambda folder: LocalWorld(folder / "state"),
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = WORLDS[request.param](tmp_path)
    yield world
    world.close()
