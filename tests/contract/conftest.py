"""The worlds that the contract holds in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.state import keeper_process
from tests.contract.boskos_world import BoskosWorld
from tests.contract.etcd_world import EtcdWorld
from tests.contract.kubernetes_world import KubernetesWorld
from tests.contract.leasectl_world import LeasectlWorld
from tests.contract.local_world import LocalWorld
from tests.contract.world import World
from tests.kit.serving import shared as shared

WORLDS: dict[str, Callable[[pytest.FixtureRequest, Path], World]] = {
    "local": lambda request, folder: LocalWorld(folder / "state"),
    "etcd": lambda request, folder: EtcdWorld(request.getfixturevalue("etcd"), folder),
    "kubernetes": lambda request, folder: KubernetesWorld(
        request.getfixturevalue("namespace"), folder
    ),
    "leasectl+http": lambda request, folder: LeasectlWorld(
        folder / "world", request.node.originalname
    ),
}
# Those of backends without pools of their own.
WORLDS_WITHOUT_POOLS: dict[str, Callable[[pytest.FixtureRequest, Path], BoskosWorld]] = {
    "boskos+http": lambda request, folder: BoskosWorld(
        request.getfixturevalue("shared_boskos"), folder
    ),
}
# On which Python, see scripts/test: servers are there on one only, processes on the oldest and the
# newest.
MARKS = {
    "local": [pytest.mark.commands, pytest.mark.processes],
    "etcd": [pytest.mark.once],
    "kubernetes": [pytest.mark.once],
    "leasectl+http": [pytest.mark.once],
}


@pytest.fixture(params=[pytest.param(w, marks=MARKS.get(w, [])) for w in WORLDS])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    # What a keeper does, the worlds do.
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    world = WORLDS[request.param](request, tmp_path)
    yield world
    world.close()
