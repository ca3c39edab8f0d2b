"""The background process of a state directory. It runs as long as something needs it.

`leasectl.state.keeper_process` starts it. It sleeps in one poll(2) until there is work, and ends in
the transaction in which it finds that nothing needs it.

- `__main__`: ``python -m leasectl.keeper DIRECTORY``
- `loop`: sleep until there is work; heed signals
- `rounds`: one round: do everything that is due
- `job`: the shape of a job: what is due, who does it, when what failed is tried again
- `handles`: the handles to look after, and whose processes have ended
- `releases`: release what is due, and what dead holders had
- `renewals`: renew leases that no living `run` renews
- `answers`: answer reclaims on behalf of holders
- `stays`: keep names in their pools on servers while processes live
- `unused_pools`: remove pools that were made on demand
- `witness`: let others pass waiters that don't come
- `namespace_lock`: tell other pid namespaces that this one lives
- `server`: which server a job is for, and the code that asking it takes
- `log`: the keeper's log
"""
