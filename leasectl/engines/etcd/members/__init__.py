"""In which pool in etcd a name is, and what is known about it there.

- `members`: read memberships, decide, and write the decision
- `views`: read names: their pools, properties and holders
- `records`: encode and parse memberships
- `stock`: the resources of a pool, as far as they matter to waiters
- `changes`: what a transaction changes about names: pure functions
- `parts`: split a change that is too large for one transaction
- `writes`: write changes, one transaction each, with their events
- `joining`: a claim that comes with a membership: a name joins already held
- `releases`: what a release heeds: names that move, leave or stay cordoned
- `removals`: take names from their pools by force while they are held
- `times`: names that enter or leave pools by time or by expiry
- `check`: check memberships for contradictions, and repair them
"""
