"""``leasectl once``: one job does shared work, the others use its result.

A lease on the work decides who does it. Results are guarded by the lease's fence.

- `work`: the work: its key, its inputs, and work that asks for itself
- `queue`: queue for the work's lease, and look at results of others meanwhile
- `doing`: return a kept result, or wait for the lease and run the command
- `own_work`: the same for work that the caller does in this process
- `under_lease`: with the lease: reuse a result, share a failure, or run the command
- `command`: run the command: capture its output, limit its time, record its result or failure
- `error_output`: pass the command's stderr on, and keep its last lines
- `results`: read, record and forget results and rounds of work
"""
