"""Pools for reclaims."""

from __future__ import annotations

import pytest

from tests.unit.reclaim.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.acquire("one", "T--0", "T--1")
    world.acquire("two", "T--2")
    return world
