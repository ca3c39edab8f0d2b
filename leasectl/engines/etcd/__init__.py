"""Pools in etcd: the cluster engine over keys below one prefix.

- `opening`: open the engine for a URL
- `address`: parse the URL of a cluster
- `objects`: read, write and watch objects; find lost answers
- `keys`: the key of each object, and of its copies
- `encoding`: encode and decode objects
- `watching`: watch what is below a prefix
- `events`: write events with what they tell of, and read them
- `key_values`: read keys and values
- `probe`: test without a trace whether etcd can do what leases need
- `gateway`: requests to etcd
"""
