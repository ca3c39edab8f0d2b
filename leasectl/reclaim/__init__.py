"""``leasectl reclaim``: take leases back by handshake, the operator's side.

A lease whose holder doesn't answer is never freed. `leasectl.leases.marks` is the holder's side.

- `plan`: which leases to ask for and which to free: a pure function
- `taking_back`: look, ask and free until enough is back
- `removal`: reclaim resources that are to leave their pool
"""
