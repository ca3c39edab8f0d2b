"""What is told of pools in Kubernetes: as events of its own, beside its Leases.

Each step, those of a waiter `of_request`, says by `event_facts` what it did, and `events` has that
be written twice: into the record of this state directory (`own_record`), with the next change
there, and as one of the `posts`, an event object of the cluster (`post_objects`), which is sent
beside all else (`posting`). So nobody waits for it, nothing fails by it, and it may be forbidden.

`log` reads both, each event once; `watch` tells who follows of those that come.
"""
