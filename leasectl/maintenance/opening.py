"""From the URL of a cluster to what maintenance needs of it."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.engines.kubernetes.api.address import is_namespace, parse_kubernetes_url
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.opening import open_api
from leasectl.errors import InvalidRequest
from leasectl.maintenance.api_cluster import ApiCluster
from leasectl.system.clock import Clock
from leasectl.text.printable import printable
from leasectl.typed.hints import Callable

_SECONDS = 10.0


def open_cluster(
    url: str,
    environment: Mapping[str, str],
    *,
    namespace: str,
    identity: str,
    warn: Callable[[str], None] = lambda _: None,
) -> ApiCluster:
    """Open a cluster; nothing is asked of it yet.

    Args:
        url: ``kubernetes://``, perhaps with a context.
        environment: The variables of this process, which may name a kubeconfig.
        namespace: Where the leases of nodes are.
        identity: Who we are in them.
        warn: Called with a line for people, about what should be known of although it goes on.

    Raises:
        InvalidRequest: Nothing names a cluster, or what does can't be used.
        CorruptState: A kubeconfig isn't one.
    """
    address = parse_kubernetes_url(url)
    if not is_namespace(namespace):
        raise InvalidRequest(f'"{printable(namespace)}" is no name of a namespace')
    choice = choose(address, environment)
    if choice.warning:
        warn(choice.warning)
    clock = Clock()
    api = open_api(choice, clock=clock, deadline_seconds=_SECONDS)
    return ApiCluster(api, namespace=namespace, identity=identity, clock=clock)
