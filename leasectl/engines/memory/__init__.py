"""Pools in this process's memory, for simulations and tests.

No step looks at all resources, claims or tickets: each has an index.

- `engine`: the engine in memory
- `waiter`: a waiter: a thread, or a turn of one thread
- `queue`: the queue of a pool, and who may claim what
- `tickets`: tickets: how they come, go and are passed
- `calls`: who was called to claim and hasn't come
- `ranking`: an order that changes all the time
- `stock`: a pool and its resources, with indexes
- `store`: all pools of a process
- `pools`: make, change, show and delete pools
- `memberships`: in which pool a name is
- `sides`: values, members and notes
- `events`: the events of the pools
"""
