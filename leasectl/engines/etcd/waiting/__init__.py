"""How whoever waits for a turn in etcd is woken, and its ticket kept alive meanwhile.

A `waiter` sleeps in poll(2) on its wakeup. All waiters of a process share one `session`, which has
two threads: one follows the `watch`, a stream to one member whose lines `events` reads, and has
`listeners` wake those whose `targets` have changed; which of them are on it, as they come and go,
`stream_watches` knows. The other thread sends the `keep_alives`, to the same member, and has what
there was time for be watched, too. Whether that one still can be believed, who is silent, is for
the answers to those to show, and for `lag` to see; if not, both threads leave it for the next.

Others have an `own_watch`: a holder, to hear of it at once when its claim is taken away, by a
`claim_watch`, and who follows events or notes, by a `change_watch`.

What comes of it is only a hint: whoever is woken looks for himself.
"""
