"""``leasectl serve``: the lease proxy's protocol in front of pools, or of Boskos.

Needs leasectl[serve].

One event loop in one thread serves thousands of waiting clients.

- `serving`: start the server process, serve, and shut down
- `api`: the lease proxy's paths, methods, codes and texts, as in ci-operator
- `connection`: notice a client that goes away, and whether it received its answer
- `origins`: refuse requests that a web page of another site may have made
- `responses`: read requests, check tokens, write responses; ``/healthz``
- `served_leases`: wait for leases on behalf of clients, and give them back
- `waits`: a client's wait: one acquisition, shared by all requests with the same key; given up keys
- `sleeps`: sleep in the event loop
- `threads`: threads for calls to another server, so that the event loop never waits for it
- `give_backs`: records of granted leases, and their release
- `metrics`: metrics, and messages for the operator: losses, the keeper
- `page`: the status page
"""
