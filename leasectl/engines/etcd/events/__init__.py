"""The events of pools in etcd: what happened, written with the change that it tells of.

Each step says by `event_facts` what it did, and `events` adds that to its transaction as `records`
has it, in one of the `buckets`, which go one by one when they are old. Of one that is full
`packing` makes a single value, as `packs` has it.

`log` reads both, bucket by bucket, and asks for `contents` of some at once.
"""
