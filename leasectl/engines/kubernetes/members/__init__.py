"""In which pool in Kubernetes each name is.

A change of several objects isn't one write. The name says first what is to be; whoever comes next
finishes what a killed process left.

- `members`: read and change memberships
- `known`: the names and pools of a namespace, as one list shows them
- `belonging`: where names belong beside pools: one object, changed in two steps
- `entering`: let a name into a pool, although no write is guarded by two objects
- `updates`: decide about several names before any is written
"""
