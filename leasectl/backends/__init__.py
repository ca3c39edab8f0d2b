"""Where leases come from: the embedded pool, etcd, Kubernetes, a lease proxy, Boskos, or nowhere.

From a URL to leases: `kinds` has a row for each scheme, which everybody asks what such a backend
can do -> `opening` looks the row up and has its module (`local`, `etcd`, `kubernetes`,
`proxy.opening`, `boskos.opening`, `dry_run`) look at the URL and open it -> what is opened is a
`Backend`, as `contract` has it, and tells a `Journal` of what it gets. What else a row's modules
ask a server for is in `servers`; `places` tells whether two URLs mean the same place.

`pool` is the one algorithm for all engines with pools; `proxy` talks to a lease proxy, `boskos` to
Boskos: `one_by_one` gets N leases from a server that grants one a request, `release_tries` gives
them back, and what is no plain answer of theirs is in `unanswered`. Those `without_pools` refuse in
the same words whatever is about them. What a cluster needs so that `kubernetes` works there is in
`kubernetes_manifest`. A new backend is a module with `check_url` and
`open_backend`, and a row; one with pools also has a world in `tests/contract`.
"""
