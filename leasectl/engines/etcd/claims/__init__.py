"""Claims in etcd: make, renew and end them.

- `claims`: make claims, give them back, and free those that have run out
- `making`: the transaction that turns a ticket into a claim
- `writes`: what a transaction writes for a claim: pure functions
- `view`: a claim as it is at one revision
- `ends`: end a claim, or a part of one, in one transaction
- `renewals`: renew a claim in two requests
- `ttl_changes`: move a claim to an etcd lease with another ttl, in one transaction
- `early_ends`: keep claims that etcd ended too early, while their holders may use them
- `forced_ends`: end claims by force, while their holders may still use them
- `notes`: notes at claims; each is a key that goes with its claim
"""
