"""What is wrong here, and what to do about it: ``leasectl doctor``.

`examination` makes one check after the other, in an order in which each may count on those before:
what the environment says (`surroundings`), what this kernel and file system can do (`machine`), the
members of an etcd cluster (`etcd`), which cluster of `kubernetes` it is, as whom, and what hands
have done there (`kubernetes_objects`), or whether a `lease_proxy` or a `boskos` is there, and how
it is reached (`way_there`), with what is claimed there (`server_claims`), the state directory as
files (`state_files`), whether its records contradict each other (`records`), whether there is a
`keeper` for those who need one, who holds what that nobody may ever give back (`holders`), what no
reclaim has come for in time (`reclaims`), which names are in another pool than expected
(`memberships`), who in the `queues` doesn't come, what is left of `works`, and whether `events` are
written. Each check returns a `Finding` (`findings`), and one that can safely be mended brings along
how.

Checks only look: without ``--fix`` nothing is changed, and no waiter is woken by being looked at.
"""
