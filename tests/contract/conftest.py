"""The worlds that the contract holds in."""

from __future__ import annotations

import secrets
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
from tests.kit.fork_server import load_everything
from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.api import write_kubeconfig
from tests.kit.kubernetes.namespaces import new_namespace
from tests.kit.kubernetes.servers import Kubernetes
from tests.kit.serving import shared as shared

WORLDS: dict[str, Callable[[pytest.FixtureRequest, Path], World]] = {
    "local": lambda request, folder: LocalWorld(folder / "state"),
    "etcd": lambda request, folder: EtcdWorld(request.getfixturevalue("etcd"), folder),
    "kubernetes": lambda request, folder: KubernetesWorld(
        request.getfixturevalue("kubeconfig_of_its_own"), folder
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


@pytest.fixture(scope="session", autouse=True)
def everything_loaded() -> None:
    """What each of the thousands of clients that are forked would else load for itself."""
    load_everything()


@pytest.fixture(scope="session")
def token_for_all(kubernetes: Kubernetes) -> Iterator[str]:
    """A token of an account with the least rights in all namespaces.

    An account of its own, with its rights, would be a quarter of what a test costs.
    """
    with new_namespace(kubernetes) as namespace:
        namespace.account.permit_everywhere(LEAST_RULES)
        yield namespace.account.token(24 * 3600)


@pytest.fixture
def kubeconfig_of_its_own(
    kubernetes: Kubernetes, token_for_all: str, tmp_path: Path
) -> Iterator[Path]:
    """A kubeconfig with that token, for a namespace in which nothing is yet."""
    first, name = kubernetes.administrators[0], f"leasectl-test-{secrets.token_hex(6)}"
    first.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield write_kubeconfig(
        tmp_path / "kubeconfig",
        server=first.server,
        ca_file=first.ca_file,
        user={"token": token_for_all},
        namespace=name,
    )
    if kubernetes.control_plane is None:
        first.ok("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(params=[pytest.param(w, marks=MARKS.get(w, [])) for w in WORLDS])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    # What a keeper does, the worlds do.
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    world = WORLDS[request.param](request, tmp_path)
    yield world
    world.close()
