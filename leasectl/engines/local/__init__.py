"""Pools in the database of the state directory: no server, no polling.

A ticket, a claim and the record of a handle change in one transaction. A waiter sleeps on a named
pipe, which the kernel opens for it even if the waker is killed.

- `engine`: the embedded pool as an engine, and its sides
- `waiter`: a waiter: its ticket, and the named pipe on which it sleeps
- `queues`: the tickets of a queue in order: read, remove, wake
- `order`: the order of a queue with priorities or aging
- `standing`: a waiter's position and what it waits for
- `wants`: a pool's settings and pace; requests that not every resource meets
- `at_once`: whether a claim can be made without heeding cordons, moves and the like
- `store`: resources, claims and fences
- `absent`: tickets and claims that end without their owner
- `unmet`: requests that a pool can't meet now
- `wakes`: who is woken by what comes to a pool
- `witness`: let others pass waiters that don't come
- `pools`: make, change, delete and show pools
- `values`: values under keys, kept beyond a boot
- `members`: read and change memberships
- `memberships`: in which pool a name is, in step with resources and claims
- `member_rows`: rows of members, and their audit
- `notes`: notes at claims
- `audit`: compare the records of handles with the claims
"""
