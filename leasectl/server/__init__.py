"""``leasectl serve``: the lease proxy's protocol in front of pools, or of Boskos.

It needs leasectl[serve]. `serving` has the process: one event loop in one thread, which thousands
of clients wait in. A request comes in by a client's `connection`, which knows when the client goes
away; `api` has the paths, `request_body` reads what came with a request, `bearer_token` tells who
may ask, and `responses` has the forms of what is answered. `served_leases` waits for leases on
behalf of clients, and has them given back by `give_backs`. Of the `waits` each is a generator of
sleeps, done by `sleeps`; or one of the `threads`, where another server grants, which may take long
over each answer. What that server took away, `losses` has heard. How a grant looks as a record is
in `grants`; whether its answer arrived, as far as the kernel knows, in `delivery`; what clients
have given up and may still arrive, in `withdrawn_keys`. Beside that: `health`, `metrics`, `notices`
for the operator, the `keeper_watch`, for leases outlive the server, and for people the `page`,
which has a folder of its own.
"""
