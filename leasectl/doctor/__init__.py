"""``leasectl doctor``: find what is wrong, and repair it.

Checks only look. A finding may carry a repair, which ``--fix`` runs.

- `examination`: run all checks in order, and repair what they find
- `findings`: the findings of checks, and words that several checks share
- `machine`: check the environment, the kernel and the file system
- `state_files`: check the files of the state directory: owner, lock, leftovers
- `records`: check the records for contradictions; check queues, reclaims and events
- `holders`: check dead holders, missing guards, memberships, and claims on servers
- `keeper`: check that a keeper runs where one is needed, and keeps up
- `etcd`: check an etcd cluster: members, access, claims
- `kubernetes`: check a Kubernetes backend: access, rights, objects edited by hand
- `lease_proxy`: check a lease proxy without taking anything
- `boskos`: check a Boskos without taking anything
"""
