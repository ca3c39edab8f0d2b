"""Pools in etcd, v3 over its JSON gateway.

`opening` leads from a URL, which `address` reads, to all that is below one prefix there; `probe`
asks whether it would do. Where everything is say `keys`, what is written there `records`, how it is
read `key_values`. The `engine` is what an acquisition goes through, in rooms:

- `queues`: from a request to its turn. A ticket is put on an etcd lease of its own, sees who is
  before it, what is left to it and when the pool's pace allows a grant.
- `waiting`: how a waiter sleeps meanwhile, is woken, and its ticket kept alive.
- `claims`: a ticket becomes a claim; that is renewed, given back, taken away, has notes.
- `pools`: the pools themselves: made, changed, shown, deleted. `values` are kept beside them.
- `members`: in which pool a name is, and what is so of it there.
- `events`: what each step tells of itself, in the transaction of that step.
- `gateway`: what all that asks is asked of whichever member answers.

Each step is one transaction; so a process may be killed after any of them.
"""
