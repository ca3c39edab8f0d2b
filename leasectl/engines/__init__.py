"""Stores that the pool algorithm runs on.

An acquisition through any of them, as `leasectl.backends.pool` takes it: `Engine.waiter` -> it
puts a ticket in the pool's queue (`enqueue`) -> it tries to claim; the engine does so for the
living ticket that is first, if enough is free -> else it tells what to sleep on (`listen`), and
tries again when it has been woken (`heard`) -> the claim takes the ticket away, and that wakes the
next. `dequeue` leaves nothing behind, whatever has happened. All this is `contract`; who comes
first is `ranking`, how fast grants may come `pacing`, what would do for a request `matching`, and
whether what is there ever could `possible`. `pool_admin` is what makes and shows the
pools, as `facts`, and `event_log` tells what happened in them (`event_words`; on servers, of
`event_parts`). What can't be done is refused by all in the same words (`refusals`).

Beside leases a store has other `sides`: `members` keeps in which pool each name is, as the pure
functions of `membership` say, which `matching` compares with what a request wants; `notes` are left
at claims for their holders and by them; `values` are kept under keys, guarded by a claim.

- `local`: jobs of one machine; tables in the state directory, in one transaction with the records.
- `etcd`: jobs of many machines; claims end with etcd's own leases.
- `kubernetes`: the same; claims are Leases of its API, and end when nobody renews them.
- `memory`: within one process, for simulations and for tests; by a clock of theirs.
"""
