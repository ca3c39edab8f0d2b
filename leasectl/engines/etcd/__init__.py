"""Pools in etcd, over its v3 JSON gateway.

Each step is one transaction, so a process may be killed after any of them.

- `engine`: the etcd engine: leases give expiry, transactions atomicity, watches hand-off
- `opening`: open the engine for a URL
- `address`: parse ``etcd://h1:2379,h2:2379/prefix``
- `probe`: test without a trace whether etcd can do what leases need
- `keys`: encode and parse keys
- `records`: encode and parse the records of pools
- `key_values`: read keys and values of responses
- `values`: values under keys in etcd
- `queues`: from a request to its turn
- `waiting`: how a waiter sleeps, is woken, and keeps its ticket alive
- `claims`: make, renew and end claims
- `pools`: make, change, show and delete pools
- `members`: in which pool a name is
- `events`: the events of pools
- `gateway`: requests to the cluster
"""
