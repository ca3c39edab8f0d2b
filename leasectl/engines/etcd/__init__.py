"""Pools in etcd: the cluster engine over keys below one prefix.

- `opening`: open the engine below a prefix; test whether etcd can do what leases need
- `address`: parse the URL of a cluster
- `objects`: read, write and watch objects; find lost answers
- `keys`: the key of each object, and of its copies; read keys and values
- `encoding`: encode and decode objects and their copies
- `watching`: watch what is below a prefix
- `events`: events and their buckets; write events in the transaction of their change
- `packing`: pack the events of an old bucket into one value; read buckets at one revision
- `event_log`: read events in order, bucket by bucket
- `gateway`: the operations of etcd's v3 JSON gateway, each within a deadline
- `requests`: build transactions, and read their responses
- `answers`: map etcd's errors to ours; explain why no member gave a usable answer
- `tokens`: share a token between the processes of a state directory

A lost answer says nothing, so every request may be repeated.
"""
