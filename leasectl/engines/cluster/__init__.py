"""Pools in a cluster store: one algorithm over objects with versions, guarded writes and watches.

Each step is one write, so a process may be killed after any of them. The drivers offer the objects:
`engines.kubernetes` writes one object at a time, `engines.etcd` several at once.

- `objects`: the facts in objects, and what a driver does with them
- `changes`: what a write makes of an object
- `fields`: read fields that others may have written
- `place`: a place of pools: its objects, and how they are read
- `context`: a place with the parts of the engine that remember something
- `engine`: the engine, and its sides
- `view`: a pool in memory, kept up to date by a watch
- `turns`: decide whose turn it is, and for what
- `observed`: since when others were seen unchanged; clocks of hosts are never compared
- `pace`: a pool's pace, without comparing clocks
- `ticket`: a ticket, as the process knows it that waits with it
- `waiter`: each step of a ticket, until it is a claim
- `session`: what all waiters of a process share: renewals of tickets, and watches
- `pool_watch`: follow a pool in a thread, and judge what a waiter can do now
- `ticket_watch`: follow three objects only, for waiters far behind in the queue
- `ends`: notice at once when a waiter on the same machine ends
- `claims`: make and give back claims; end them by force
- `renewals`: renew claims
- `notes`: notes at claims, and a watch of them
- `claim_watch`: wake a holder when others change what it holds
- `members`: read and change memberships
- `known`: the names and pools of a place; decide about several names before any is written
- `entering`: let a name into a pool; where names belong beside pools
- `pools`: make and change pools
- `deletions`: delete pools, and finish what a killed process left
- `listing`: list pools and their names
- `shown`: read pools as they are shown
- `values`: values under keys: an object for each subject
- `events`: the events of each step, and of pools
- `following`: a thread that follows watches and wakes those that wait for them
"""
