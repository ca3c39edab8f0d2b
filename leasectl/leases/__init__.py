"""The verbs on leases, a file each.

An acquisition: the command line makes a `service` (state directory, backend, `caller`) and calls
`acquire`; the `request` becomes a record, which a `journal` keeps in step while the backend takes
its turn in the queue; the command announces (`announce`) what was had, or takes it back. On a
server `acquire_remote` goes that road, since grant and record can't be one transaction there.

What becomes of it: `release` (on a server `release_remote`; of what others hold `release_forced`),
`delay` has the keeper do that later, `renew` (by threads: `renewal_threads`), `reacquire` takes the
same again. `targets` finds the handles that a path, names or `scope_test`'s list mean; `adoption`
makes one for names that none here holds. What is `held_here` is told where a server doesn't tell
what it has. What the resources are, `properties` tells programs. What nobody does any more:
`recovery` gives back what the dead hold, `losses` records what went away by itself. Where a backend
has no pools that could tell what happened, `record_events` does.

Somebody may want a lease back, and notes a mark at it (`marks`). What a holder hands out is in
`use`, and can't be taken meanwhile; what is `asked` of it is seen and recorded; the `answers` are
given for it by the keeper or `run`, or by its script, which is the verb `answer`.

Pools that are there only as long as somebody needs them are made `on_demand`.
"""
