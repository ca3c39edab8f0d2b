"""``leasectl once``: one job does shared work, the others use its result.

A lease on the work decides who does it. Results are guarded by the lease's fence.

- `work`: the work: its key, its inputs, and work that asks for itself
- `doing`: return a kept result, or wait for the lease and do the work
- `under_lease`: with the lease: reuse a result, share a failure, or run the command
- `command`: run the command: capture its output, limit its time, record its result or failure
- `error_output`: pass the command's stderr on, and keep its last lines
- `results`: read, record and forget results and rounds of work
"""
