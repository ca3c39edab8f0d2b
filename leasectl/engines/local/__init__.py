"""Pools in tables of the state directory's database: no server, no polling.

An acquisition: the `engine` makes a `waiter`, which in one transaction with the handle's record
puts a ticket into one of the `queues`, and a named pipe to be woken by beside it (`wait_pipes`).
Numbers are the order there until somebody has a priority or ages: then it is that of `order`, in
which each keeps its `place`. While another keeps it back the waiter sleeps on its pipe and on that
one's process; whoever changes what it waits for opens the pipe within the transaction, so that the
kernel wakes it whatever becomes of the waker; whom, where not all are alike, say `wakes`. When it
is its turn, and the pool's `settings` allow a grant by its `pace`, it claims what is free, least
recently acquired first, by the `store`, which also expires claims and gives fences; `renewals`
makes them last. What was ended by force is kept by `early_ends` while its holder may use it; of a
ticket that got nothing, or has gone, tells `giving_up`. The `witness`, for which the keeper looks,
finds those who don't come when they could: they are `absent`, and others pass; so they do with
requests that are `unmet` by what is in the pool now. What is had `at_once` needs no look at what
may be over elsewhere in the pool. What not any resource would do for can have is in `wants`. How
things stand is told by `standing`; `pools` makes, changes and deletes pools, `showing` has what is
shown of them, and before that is taken away what is `over`. Beside leases it has other `sides`:
`members` says in which pool each name is, by `memberships`, which keep `member_rows` in step with
claims; `notes` at claims, and `values` under keys. `audit` finds what these tables and the records
of handles say against each other, and `member_audit` what can't be so of names, for `doctor`.
"""
