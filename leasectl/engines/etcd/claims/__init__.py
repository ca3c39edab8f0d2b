"""Claims in etcd: what a ticket becomes, until nothing is left of it.

`claims` is what the rest goes through: it makes them, gives them back, and frees what has run out.
What `making` one takes is one transaction; `writes` says how a claim is written, whole and what is
left of it, and `view` what is seen of it. All ways to its end come to `ends`.

`renewals` gives it its full time again, `ttl_changes` another ttl. What etcd ended before its time
`early_ends` keeps for as long as its holder may believe in it; so `forced_ends` takes a claim away.
`notes` are what others leave at it for its holder, and its holder for them.
"""
