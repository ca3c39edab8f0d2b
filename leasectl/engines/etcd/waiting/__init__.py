"""How a waiter on etcd is woken, and its ticket kept alive.

All waiters of a process share one session with two threads: one follows watches, the other sends
keep-alives. A watch is only a hint: a waiter that is woken looks for itself.

- `waiter`: a waiter: its ticket, its queue, and the wakeup that ends its sleep
- `session`: the session that all waiters of a process share
- `watch`: follow one stream of watches to one member, in a thread
- `stream_watches`: the watches of one stream, from creation to end
- `events`: read the messages of a watch stream
- `listeners`: who listens for which key, and how far each watch has told
- `targets`: what a ticket waits for, and the watches that tell of it
- `keep_alives`: send the keep-alives of all waiters, from one thread
- `lag`: detect a member that lags, from its answers to keep-alives
- `own_watch`: a watch with a stream and thread of its own, for who isn't a waiter
- `claim_watch`: wake a holder when others change what it holds
- `change_watch`: wake a follower of events or notes when there are more
"""
