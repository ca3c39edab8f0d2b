"""Stores that the pool algorithm (`leasectl.backends.pool`) runs on.

An acquisition puts a ticket in the queue (`Waiter.enqueue`), tries to claim, sleeps until it is
woken, and tries again. The claim removes the ticket.

- `contract`: the interface between the pool algorithm and an engine
- `pool_admin`: the interfaces for pools, members, values, notes and events
- `facts`: what an engine tells about its pools
- `rules`: the rules of pools: pure functions that every engine calls
- `notes`: short notes at claims, from others to the holder and back
- `values`: values in a store, under keys beside the pools
- `refusals`: refusals that all engines give in the same words
- `local`: tables in the state directory, for the jobs of one machine
- `cluster`: the algorithm on a store of objects with versions and watches
- `kubernetes`: its driver on Kubernetes, with the API, logins and kubeconfigs
- `etcd`: for the jobs of many machines; claims end with etcd's leases
"""
