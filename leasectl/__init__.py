"""Take, hold and give back leases on scarce resources, for CI step scripts.

A command line is parsed in `cli`, which calls a verb in `leases`, `pools`, `run` or `once`. A verb
asks a backend. Imports go one way, from `cli` down to `system` and `text`.

- `backends`: where leases come from: embedded pool, etcd, Kubernetes, lease proxy, Boskos
- `cli`: the command line
- `doctor`: find what is wrong, and repair it
- `engines`: stores that the pool algorithm runs on
- `http`: an HTTP client with deadlines
- `keeper`: the background process of a state directory
- `leases`: the verbs on leases
- `maintenance`: maintenance windows of nodes
- `once`: one job does shared work, the others use its result
- `pools`: the verbs on pools, statistics and simulation
- `pyz`: start `leasectl.pyz`, all of leasectl in one file
- `reclaim`: take leases back by handshake
- `run`: run a command under a lease
- `server`: the lease proxy's protocol in front of pools
- `shell`: the Bash functions for step scripts
- `state`: the records of a state directory
- `system`: clocks, processes, signals, locks
- `text`: parse input, format output
- `errors`: all errors, with their exit codes
- `model`: facts that several packages share; words as in the Kubernetes LeaseSpec
"""

__version__ = "0.4.0"
