"""Pools in this process's memory, for simulations and for the pool algorithm's own tests.

An acquisition here: the `engine` makes a `waiter` -> that puts a ticket in the pool's `queue` ->
not at its head it sleeps, on a descriptor, or under a bare number where one thread runs all turns
-> whoever frees something or leaves the queue wakes it -> at the head, when the pace allows it, it
takes from the `store` what was acquired least recently. One that was called and doesn't come is
passed (`calls`); so is a ticket that what is in the pool can't meet now (`tickets`). `pools` makes,
changes and shows pools; what happens in them is in `events`. The other `sides`: `members` says in
which pool each name is, as `memberships` keeps it; `notes` are left at claims, and `values` kept
under keys.

No step looks at all resources, claims or tickets: a pool (`stock`) has an index of each, those that
are asked for their first one as a `ranking`, tickets in a line for each priority.
"""
