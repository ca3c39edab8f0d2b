"""Pools in Kubernetes: Lease objects of one namespace, with nothing to install.

Each step is one write of one object, so a process may be killed after any of them.

- `engine`: the Kubernetes engine: one object for each resource, ticket and pool; guarded writes
- `opening`: open the engine for a namespace
- `following`: a thread that follows watches and wakes whoever waits for them
- `restored`: handle a cluster that was restored from a backup
- `objects`: read and write the objects
- `queues`: from a request to its turn
- `waiting`: how a waiter sleeps, is woken, and keeps its ticket alive
- `claims`: make, renew and end claims
- `pools`: make, change, show and delete pools
- `members`: in which pool a name is
- `events`: the events of pools
- `api`: requests to the API server
"""
