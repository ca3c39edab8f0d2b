"""The worlds that the contract holds in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from tests.contract.etcd_world import EtcdWorld
from tests.contract.kubernetes_world import KubernetesWorld
from tests.contract.local_world import LocalWorld
from tests.contract.memory_world import MemoryWorld
from tests.contract.world import World
from tests.kit.serving import shared as shared

WORLDS: dict[str, Callable[[pytest.FixtureRequest, Path], World]] = {
    "memory": lambda request, folder: MemoryWorld(),
    "local": lambda request, folder: LocalWorld(folder / "state"),
    "etcd": lambda request, folder: EtcdWorld(request.getfixturevalue("etcd"), folder),
    "kubernetes": lambda request, folder: KubernetesWorld(
        request.getfixturevalue("namespace"), folder
    ),
}
# Servers are there on one Python only: see scripts/test.
SERVERS = ("etcd", "kubernetes")


# What the engine on Kubernetes hasn't got yet: the modules about that.
NOT_YET_ON_KUBERNETES = ("event", "member", "note", "shown", "value", "where")


@pytest.fixture(
    params=[pytest.param(w, marks=[pytest.mark.once] if w in SERVERS else []) for w in WORLDS]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    about = request.module.__name__.rpartition("test_")[2].partition("_")[0]
    if request.param == "kubernetes" and about in NOT_YET_ON_KUBERNETES:
        pytest.skip(f"kubernetes:// has none of this yet: {about}")
    world = WORLDS[request.param](request, tmp_path)
    yield world
    world.close()
