"""The events of pools in etcd, written in the transaction of the change that they tell of.

- `events`: add events to transactions
- `records`: encode and parse events
- `buckets`: buckets of events: all on one etcd lease, so that they expire together
- `packing`: encode and parse packed buckets; pack the events of an old bucket into one value
- `contents`: read the contents of buckets at one revision
- `log`: read events in order, bucket by bucket
"""
