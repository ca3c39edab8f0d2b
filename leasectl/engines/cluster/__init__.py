"""Pools in a cluster store: one algorithm over objects with versions, guarded writes and watches.

Each step is one write, so a process may be killed after any of them. The drivers offer the objects:
`engines.kubernetes` writes one object at a time, `engines.etcd` several at once.

- `objects`: the facts in objects, and what a driver does with them
- `changes`: what a write makes of an object, and whether it was carried out
- `records`: the facts of an object as JSON, checked when they are read
- `context`: a place of pools: how its objects are read and changed, what is remembered of them
- `engine`: the engine, and its sides
- `view`: a pool in memory, kept up to date by a watch
- `turns`: decide whose turn it is, and when the pool's pace allows a grant
- `observed`: since when others were seen unchanged; clocks of hosts are never compared
- `ticket`: a ticket, as the process knows it that waits with it
- `waiter`: each step of a ticket, until it is a claim; the ends of other waiters
- `expiry`: remove the tickets of dead waiters, expired claims, names whose time is up
- `session`: what all waiters of a process share: renewals of tickets, and watches
- `watches`: follow a pool, or only three objects for waiters far behind, in a thread
- `claims`: make, release, expire and revoke claims
- `renewals`: renew claims
- `notes`: notes at claims; watch notes, and what others change at a holder's claims
- `members`: read and change memberships
- `entering`: let a name into a pool; decide about several names before any is written
- `pools`: make, change and show pools
- `deletions`: delete pools, and finish what a killed process left
- `values`: values under keys: an object for each subject
- `events`: the events of each step, and of pools
"""
