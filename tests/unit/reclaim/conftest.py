"""Pools for reclaims."""

from __future__ import annotations

import pytest

from leasectl.state import keeper_process
from tests.unit.reclaim.world import World


@pytest.fixture(autouse=True)
def no_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)


@pytest.fixture
def world() -> World:
    world = World()
    world.acquire("one", "T--0", "T--1")
    world.acquire("two", "T--2")
    return world
