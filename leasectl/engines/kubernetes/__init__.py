"""Pools in Kubernetes: Leases of its own API in one namespace, with nothing to install.

A resource, a ticket and a pool is an object each: `names` says what it is called, `objects` what it
says, `reading` how that is read, by its `fields`, `bodies` and `resource_bodies` how it is written,
and `store` writes it, guarded by what was seen, so that nothing that somebody else has changed is
written over, and nothing that was deleted comes back; `recognition` tells after a lost answer
whether it was written, and `edited` what hands have made of it. Whatever is asked of a cluster goes
through `api`, which knows where it is and who we are there.

An acquisition through the `engine`: a list is a `view` of the pool; by that `turns` says whose turn
it is, and for what. Where nobody waits, `claims` makes a claim at once; else its process puts a
`ticket`, and `waiting` keeps that alive, and wakes its waiter. What is over is seen by whoever
looks (`observed`), never by comparing clocks; so is how fast the pool's `pace` lets grants come;
`dead_tickets` go when they are over. What `new_claims` say is the same whoever makes them;
`renewals` gives a claim its full time again, `claims` gives it back, and `forced_ends` takes it
away.

`pools` makes and changes pools, `deletions` deletes them; `members` says in which each name is, by
what is `known`, and carries `updates` out: a name comes in by `entering`, if what is said beside
pools (`belonging`) has it so. `listing` says which there are, `shown` what is in them, and
`standing` that to who waits. `notes` are left at claims, and read along with them (`notes_at`).
Beside pools `values` are kept, as `value_objects`. What was done is told by `events`, and that a
cluster was `restored` from a backup to whom it concerns. Who is to hear of what others do is
`following` a watch. From a cluster to all that leads `opening`.
"""
