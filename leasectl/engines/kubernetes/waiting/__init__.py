"""How a waiter on Kubernetes is woken, and its ticket kept alive.

All waiters of a process share one session: a thread that renews tickets, and a watch for each pool.
A watch is only a hint: each write is guarded by what was read.

- `waiter`: each step of a ticket, until it is a claim
- `session`: the session that all waiters of a process share
- `pool_watch`: follow a pool in a thread, and keep a view of it
- `ticket_watch`: follow three objects only, for waiters far behind in the queue
- `verdict`: what a waiter can do now: a pure function
- `ends`: notice at once when a waiter on the same machine ends
- `paying`: pay a pool's pace, once, before the claim
- `leftovers`: remove tickets that have become claims
- `coming`: names that move into a pool once their lease in another is over
- `claim_watch`: wake a holder when others change what it holds
- `change_watch`: wake a follower when notes in a pool change
"""
