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
NOT_YET_ON_KUBERNETES = ("event", "value")
# Nor does who waits in a pool look at what is to move there when its lease is over.
ONLY_SEEN_BY_OTHERS = "test_of_a_held_one_comes_with_whatever_ends_its_lease"


@pytest.fixture(
    params=[pytest.param(w, marks=[pytest.mark.once] if w in SERVERS else []) for w in WORLDS]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    about = request.module.__name__.rpartition("test_")[2].partition("_")[0]
    is_missing = about in NOT_YET_ON_KUBERNETES or request.function.__name__ == ONLY_SEEN_BY_OTHERS
    if request.param == "kubernetes" and is_missing:
        pytest.skip("kubernetes:// hasn't got this yet")
    world = WORLDS[request.param](request, tmp_path)
    yield world
    world.close()
