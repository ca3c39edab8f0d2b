"""How whoever waits for a turn in Kubernetes is woken, and its ticket kept alive meanwhile.

A `waiter` sleeps in poll(2) on its wakeup. All waiters of a process share one `session`: a thread
that renews their tickets and looks at the time, for what is over is told by nobody, and for each
pool a `pool_watch`, a thread that keeps a view of it up to date. Whenever that changes
somebody's `verdict`, that one is woken, and nobody else. Who is far behind follows three objects
only (`ticket_watch`). Of those who wait on the same machine each hears the `ends` at once.

What a ticket has to pay where its pool has a pace, `paying` says; what becomes of it when it is a
claim, `leftovers`; what is `coming` from other pools is looked at now and then.

Others have a watch of their own: a holder, to hear of it at once when its claim is taken away
(`claim_watch`), and who follows what is noted in a pool (`change_watch`).

What comes of it is only a hint: each write is guarded by what was seen.
"""
