"""Leases from pools: the one pool algorithm, over every engine.

`backend` is what the rest of the package sees: it releases, renews and withdraws by asking the
engine, and has a `turn` for each acquisition. That puts a ticket in the queue, sleeps until no
living ticket is before its own, claims at the head as soon as there is enough, and has the journal
record the grant; the claim takes the ticket away and so wakes the next. What ends the wait
otherwise, a deadline, a signal, a withdrawal, an error, takes the ticket away as well. Where
several types would do, `either` has a ticket in the queue of each, and leaves the others with the
first grant. Who is first, and gets nothing although something is free, is told why it is `closed`.

A turn is a generator that yields its sleeps: one process sleeps through them one after the other,
a server has thousands at once, and on the memory engine a simulation has no need to sleep at all.
What an engine does for it is in `leasectl.engines.contract`.
"""
