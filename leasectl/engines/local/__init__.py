"""Pools in tables of the state directory's database: no server, no polling.

An acquisition: the `engine` makes a `waiter`, which in one transaction with the handle's record
puts a ticket into one of the `queues`, and a named pipe to be woken by beside it (`wait_pipes`).
While another keeps it back it sleeps on its pipe and on that one's process; whoever changes what it
waits for opens the pipe within the transaction, so that the kernel wakes it whatever becomes of the
waker. When it is its turn it claims what is free, least recently acquired first, by the `store`,
which also expires claims and gives fences. What was ended by force is kept by `early_ends` while
its holder may use it; of a ticket that got nothing tells `giving_up`. One that doesn't come when it
could have, the `witness` lets others pass; the keeper has it look. `pools` makes, changes and shows
pools. `audit` finds what these tables and the records of handles say against each other, for
`doctor`.
"""
