"""A node of a real API server, and what maintenance sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.maintenance.api_cluster import ApiCluster, open_cluster
from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, make_node

US = "machine-remediation"


@pytest.fixture
def node(namespace: Namespace) -> Iterator[str]:
    """A node for this test alone."""
    name = f"node-{namespace.name}"
    make_node(namespace.administrator, name)
    yield name
    namespace.administrator.ok("DELETE", f"{NODES}/{name}")


@pytest.fixture
def cluster(namespace: Namespace, kubeconfig: Path, node: str) -> ApiCluster:
    namespace.account.permit_everywhere(MAINTENANCE_RULES)
    environment = {"LEASECTL_KUBECONFIG": str(kubeconfig)}
    return open_cluster("kubernetes://", environment, namespace=namespace.name, identity=US)


def annotations_of(namespace: Namespace, node: str) -> Object:
    """What is noted at a node."""
    said: Object = namespace.administrator.ok("GET", f"{NODES}/{node}")["metadata"]
    texts: Object = said.get("annotations", {})
    return texts
