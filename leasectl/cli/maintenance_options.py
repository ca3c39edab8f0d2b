"""Options of ``leasectl maintenance``."""

from __future__ import annotations

import os
import re

from leasectl.backends.kinds import kind_of
from leasectl.cli.described import CLUSTER, option, word
from leasectl.cli.rendering.output import note
from leasectl.errors import InvalidRequest, NotSupported
from leasectl.leases.opening import choose_backend
from leasectl.maintenance.api_cluster import ApiCluster, open_cluster
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import Us
from leasectl.text.wording import printable, printable_url

DEFAULT_NAMESPACE = "leasectl-maintenance"
DEFAULT_IDENTITY = "machine-remediation"
_NODE = "{node}"

# RFC 1123, as the API server wants it of names of nodes and Leases.
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST = 253


def check_node(text: str) -> str:
    """Return the name of a node, or raise InvalidRequest when none can have it."""
    if len(text) > _LONGEST or not _SUBDOMAIN.fullmatch(text):
        raise InvalidRequest(
            f'invalid node name "{printable(text)}"; list the nodes with: kubectl get nodes'
        )
    return text


node_argument = word("node", "NODE", type=check_node)
backend = option(
    "--backend URL",
    "The cluster: kubernetes://, or with ?context=NAME&kubeconfig=PATH. Default: LEASECTL_BACKEND.",
    group=CLUSTER,
)
lease_namespace = option(
    "--lease-namespace NS",
    f"Namespace of the nodes' Leases. Default: {DEFAULT_NAMESPACE}.",
    group=CLUSTER,
    default=DEFAULT_NAMESPACE,
)
lease_name = option(
    "--lease-name NAME",
    f"Name of a node's Lease; {_NODE} stands for the node's name. Default: {_NODE}.",
    type=str,
    completed_from=None,
    group=CLUSTER,
    default=_NODE,
)
identity = option(
    "--identity WHO",
    f"Holder identity in the Leases, the same for all replicas. Default: {DEFAULT_IDENTITY}.",
    group=CLUSTER,
    default=DEFAULT_IDENTITY,
)


def settings_of(lease_name: str, identity: str) -> Settings:
    """Return the settings that name the Leases and their holder.

    Raises:
        InvalidRequest: One of them is invalid.
    """
    if lease_name.count(_NODE) != 1:
        raise InvalidRequest(
            f'invalid --lease-name "{printable(lease_name)}"; it must contain {_NODE} once'
        )
    example = lease_name.replace(_NODE, "node")
    if len(example) > _LONGEST or not _SUBDOMAIN.fullmatch(example):
        raise InvalidRequest(
            f'invalid --lease-name "{printable(lease_name)}"; use lower-case letters, digits, "-" '
            f'and "." around {_NODE}'
        )
    if not identity.strip() or not identity.isprintable():
        raise InvalidRequest(f'invalid --identity "{printable(identity)}"; use printable text')
    return Settings(Us(identity), lease_name)


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
