"""Where leases come from: the embedded pool, etcd, Kubernetes, a lease proxy, Boskos.

- `kinds`: the class of a backend, and the registry of URL schemes
- `contract`: what a backend is given, and what an acquisition is made of
- `servers`: what a server tells of its leases, beside granting them
- `local`: ``local:``: the embedded pool; ``none:``: every request succeeds, and nothing is leased
- `etcd`: ``etcd://``: pools in etcd
- `kubernetes`: ``kubernetes://NAMESPACE``: pools in a Kubernetes namespace
- `kubernetes_manifest`: the manifest that an administrator applies to a cluster
- `one_by_one`: all or none of N leases, from a server that grants one a request
- `release_tries`: release names on a server one by one, until each is certain
- `unanswered`: handle requests without a usable answer
- `pool`: the pool algorithm, over any engine
- `proxy`: the lease proxy
- `serve`: a `leasectl serve`, over the extension of its HTTP API
- `boskos`: Boskos

Here the classes are registered, in the order in which help tells of them. A class's module is
loaded when a URL has its scheme, and by what tells of all backends.
"""

from __future__ import annotations

from leasectl.backends.kinds import Kind, register


def _local() -> Kind:
    from leasectl.backends.local import LocalBackend

    return LocalBackend


def _etcd() -> Kind:
    from leasectl.backends.etcd import EtcdBackend

    return EtcdBackend


def _kubernetes() -> Kind:
    from leasectl.backends.kubernetes import KubernetesBackend

    return KubernetesBackend


def _proxy() -> Kind:
    from leasectl.backends.proxy.backend import ProxyBackend

    return ProxyBackend


def _serve() -> Kind:
    from leasectl.backends.serve.backend import ServeBackend

    return ServeBackend


def _boskos() -> Kind:
    from leasectl.backends.boskos.backend import BoskosBackend

    return BoskosBackend


def _none() -> Kind:
    from leasectl.backends.local import DryRunBackend

    return DryRunBackend


register(_local, "local")
register(_etcd, "etcd", "etcds")
register(_kubernetes, "kubernetes")
register(_proxy, "http", "https")
register(_serve, "leasectl+http", "leasectl+https")
register(_boskos, "boskos+http", "boskos+https")
register(_none, "none")
