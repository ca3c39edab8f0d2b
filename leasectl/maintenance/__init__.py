"""``leasectl maintenance``: a node takes no work for a limited time.

- `facts`: a node, its Lease, and what was observed of them
- `lifecycle`: what to do next, and when to look again: a pure function of the facts
- `controller`: carry out what `lifecycle` says, one request at a time, while it leads
- `leadership`: elect one of several replicas, as client-go does
- `drain`: evict the pods of a node
- `objects`: read and write nodes, Leases and pods
- `api_cluster`: the Kubernetes API for the controller: nodes, Leases, pods, evictions
- `watching`: watch nodes and their Leases
- `asked`: request, cancel and show maintenance
"""
