"""The queues of pools in etcd: from a request that arrives until it has become a claim.

If it is `possible`, the `entrance` puts a ticket, of which its process keeps what it knows in a
`ticket`; from there `queues` has it. A `look` shows all that its turn depends on, a `view` of one
revision: who is before it, in the order that `rank` keeps by priority, and what better ones leave
to it of what is free, as `competing` has it. Once the one before it has gone, a `glance` mostly
does. At the head of the queue the pool's `pace` says when the next grant may be; the rest is done
in `claims`.

`standing` tells who waits how things are. `withdrawals` takes tickets away that become nothing, and
tells of those whose waiters have died.
"""
