"""Where leases come from: the embedded pool, etcd, Kubernetes, a lease proxy, Boskos.

- `contract`: the interface of a backend
- `kinds`: a row for each URL scheme, with what such a backend can do
- `opening`: open the backend of a URL
- `servers`: other modules that a row of `kinds` names, for requests beside acquiring
- `places`: whether two URLs mean the same place
- `local`: ``local:``: the embedded pool
- `etcd`: ``etcd://``: pools in etcd
- `kubernetes`: ``kubernetes://NAMESPACE``: pools in a Kubernetes namespace
- `kubernetes_manifest`: the manifest that an administrator applies to a cluster
- `dry_run`: ``none:``: every request succeeds, and nothing is leased
- `without_pools`: refusals of backends without pools of their own
- `one_by_one`: all or none of N leases, from a server that grants one a request
- `release_tries`: release names on a server one by one, until each is certain
- `unanswered`: handle requests without a usable answer
- `pool`: the pool algorithm, over any engine
- `proxy`: the lease proxy
- `boskos`: Boskos
"""
