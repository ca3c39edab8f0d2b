"""Pools in Kubernetes: Leases of its own API in one namespace, with nothing to install.

A resource, a ticket and a pool is an object each. From a cluster to all that leads `opening`. The
`engine` is what an acquisition goes through, in rooms:

- `objects`: what each says, how it is read and written, guarded by what was seen of it.
- `queues`: from a request to its turn. Where others wait, its process puts a ticket.
- `waiting`: how a waiter sleeps meanwhile, is woken, and its ticket kept alive.
- `claims`: a claim is made at once or of a ticket; renewed, given back, taken away, has notes.
- `pools`: the pools themselves: made, changed, shown, deleted. `values` are kept beside them.
- `members`: in which pool a name is, and what is so of it there.
- `events`: what each step tells of itself.
- `api`: where the cluster is, who we are there, and whatever is asked of it.

Each step is one write of one object; so a process may be killed after any of them. Who is to hear
of what others do is `following` a watch; that a cluster was `restored` from a backup is told.
"""
