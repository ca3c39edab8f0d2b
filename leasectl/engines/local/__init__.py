"""Pools in the database of the state directory: no server, no polling.

A ticket, a claim and the record of a handle change in one transaction. A waiter sleeps on a named
pipe, which the kernel opens for it even if the waker is killed.

- `engine`: the embedded pool as an engine, and its sides
- `waiter`: a waiter: its ticket, and the named pipe on which it sleeps
- `queues`: the tickets of a queue in order: put, read, suspend, remove; wake their waiters
- `order`: the order of a queue with priorities or aging
- `standing`: a waiter's position and what it waits for
- `wants`: a pool's settings and pace; requests that not every resource meets
- `store`: resources, claims and fences
- `absent`: tickets and claims that end without their owner
- `witness`: let others pass waiters that don't come
- `pools`: make, change, delete and show pools
- `values`: values under keys, kept beyond a boot
- `members`: the pool of each name, in step with resources and claims; requests that a pool can't
  meet now
- `member_rows`: rows of members, and their audit
- `notes`: notes at claims
- `audit`: compare the records of handles with the claims
"""
