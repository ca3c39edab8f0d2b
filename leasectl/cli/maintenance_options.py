"""Options of ``leasectl maintenance``."""

from __future__ import annotations

import os

from leasectl.backends.kinds import kind_of
from leasectl.cli.described import option, word
from leasectl.cli.rendering.output import note
from leasectl.errors import NotSupported
from leasectl.leases.opening import choose_backend
from leasectl.maintenance.api_cluster import ApiCluster, open_cluster
from leasectl.maintenance.controller import NODE, check_node
from leasectl.text.wording import printable_url

DEFAULT_NAMESPACE = "leasectl-maintenance"
DEFAULT_IDENTITY = "machine-remediation"

node_argument = word("node", "NODE", type=check_node)
backend = option(
    "--backend URL",
    "The cluster: kubernetes://, or with ?context=NAME&kubeconfig=PATH. Default: LEASECTL_BACKEND.",
    group="Cluster",
)
lease_namespace = option(
    "--lease-namespace NS",
    f"Namespace of the nodes' Leases. Default: {DEFAULT_NAMESPACE}.",
    group="Cluster",
    default=DEFAULT_NAMESPACE,
)
lease_name = option(
    "--lease-name NAME",
    f"Name of a node's Lease; {NODE} stands for the node's name. Default: {NODE}.",
    type=str,
    completed_from=None,
    group="Cluster",
    default=NODE,
)
identity = option(
    "--identity WHO",
    f"Holder identity in the Leases, the same for all replicas. Default: {DEFAULT_IDENTITY}.",
    group="Cluster",
    default=DEFAULT_IDENTITY,
)


def cluster_of(
    backend: str | None,
    namespace: str = DEFAULT_NAMESPACE,
    identity: str = DEFAULT_IDENTITY,
) -> ApiCluster:
    """Open the cluster that the command line or the environment names.

    Args:
        backend: What ``--backend`` says.
        namespace: Where the leases of nodes are.
        identity: Who we are in them.

    Raises:
        NotSupported: It names a backend that has no nodes.
        InvalidRequest: It names none, or none that there is.
    """
    url = choose_backend(backend).url
    if not kind_of(url).is_cluster:
        raise _no_nodes(url)
    return open_cluster(url, os.environ, namespace=namespace, identity=identity, warn=note)


def _no_nodes(url: str) -> NotSupported:
    kind = kind_of(url)
    instead = (
        "; to keep new holders from a resource of a pool, use: leasectl pool cordon"
        if kind.has_pools
        else ""
    )
    return NotSupported(
        f"{kind.title} ({printable_url(url)}) has no nodes; maintenance needs a Kubernetes "
        f"cluster: --backend kubernetes://{instead}"
    )
