"""Takes, holds and gives back leases on scarce resources, for CI step scripts.

A command goes down through the rooms of this house, and nothing ever looks up: `cli` reads what was
typed and calls a verb in `leases` (or in `pools`, or has `run` run a command under a lease), which
asks one of the `backends`. Those with pools share one algorithm over `engines`: one in memory, one
in a file, one in etcd, one in Kubernetes; others ask a lease proxy, or Boskos. Records of who holds
what are in `state`, servers are reached by `http`, the machine by `system`; `text` has the words.
What fails is one of `errors`, what is passed around a fact of `model`, what is said of types is of
`typed`.

More use the verbs: the `keeper`, the one background process of a state directory; the `server`,
which speaks the lease proxy's protocol; `once`, where one does what the others use; `reclaim`,
which takes back what holders don't use; `maintenance`, a time in which a node takes no work; and
`doctor`, who looks whether all is well.
`shell` is what Bash scripts source, `pyz` all of it in one file. Each folder tells its own story in
its ``__init__.py``.
"""

__version__ = "0.4.0"
