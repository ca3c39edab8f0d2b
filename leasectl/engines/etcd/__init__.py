"""Pools in etcd, v3 over its JSON gateway.

Everything is below one prefix (`keys`; `records` is what is written there, `key_values` how it is
read), and `engine` is what all goes through. An acquisition: if it is `possible`, `queues` puts a
ticket on an etcd lease of its own, of which its process keeps what it knows in a `ticket`; `look`
reads who is before it, by `rank`, and what is free and left to it by others (`competing`); while
there is too little the session in `waiting` keeps the etcd lease alive and has a watch wake the
waiter; at the head of the queue, once the pool's `pace` allows a grant, `claims` makes of the
ticket, in one transaction (`claim_making`, `claim_writes`), a claim. `renewals` gives that its
full time again (`ttl_changes` another ttl), `claims` gives it back, or frees what has run out, and
`early_ends` keeps what, by a `claim_view`, etcd ended too early for as long as its holder may
believe in it, which is also how `forced_ends` takes a claim away. `withdrawals` takes tickets away
that become nothing. `pools` makes and changes pools, `pool_types` says which there are, `settings`
how they grant, `pool_removals` takes them away, `shown` tells what is in them, with `shown_facts`,
and `standing` that to who waits. `notes` are left at claims, and `values` kept beside pools.

In which pool a name is `members` changes: `member_views` sees all that `member_records` has of it,
`member_changes` says what a transaction makes of that, in `member_parts` where it is too much, with
what `member_removals` takes from holders or `member_claims` gives to them, and `member_writes`
writes it. `member_releases` is what a release heeds, `member_times` what comes and goes by itself,
and `stock` what all that is to who waits; `member_check` looks whether all of it agrees.

Each step writes what it did with what it does: `event_facts` says it, `events` adds it to the
transaction as `event_records` has it, in one of the `event_buckets` that go one by one. When such a
bucket is full, `event_packing` makes one value of it, as `event_packs` has it. `event_log` reads
both, as `event_contents` asks for them. `claim_ends` is the end of a claim, which all others come
to.

Whatever they ask is asked of whichever member answers: `gateway`. From a URL to all that lead
`address` and `opening`; `probe` asks whether it would do.
"""
