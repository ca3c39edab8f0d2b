"""Maintenance of nodes: a time in which a node takes no work, and its end.

What is seen of a node and its lease, and what can be written there, are `facts`. The `lifecycle` is
one pure function of them: it says what is to be done next, and when to look again. It remembers
nothing between two looks, so that it doesn't matter which of us looks, or who was killed when. It
is tried in every state that there is; its states are drawn in docs/maintenance.md.

The `controller` does what it says, one request at a time, as long as it has the `leadership` of its
replicas: a `drain` is many such requests. Since when other's leases are unchanged is `observed`.
What all that needs of a `cluster` is little; `api_cluster` has it of a real one, whose objects
`objects` reads and writes, and `watching` says where something has changed. `opening` finds it.
What people ask of nodes is `asked`.
"""
