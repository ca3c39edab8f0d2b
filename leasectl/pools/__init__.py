"""The verbs on pools, and what their events tell.

- `admin`: show pools, add to them, apply files
- `definitions`: read pool files, also Boskos' resource lists
- `changes`: compare a file with what is there, and carry out the difference
- `settings`: a pool's pace, burst and aging
- `properties`: set properties of resources
- `memberships`: move, cordon and expect names; warn about requests that become impossible
- `expectations`: expect names and patterns in pools, on any store
- `joining`: let a name join a pool, perhaps already held
- `whereabouts`: in which pool a name is, and why
- `showing`: read what is shown of pools, from the store and the records
- `shown`: what is shown of pools, as facts
- `shown_json`: the same as JSON
- `counted`: counts of a server that lists no resources
- `history`: read events, from a backend or from JSON
- `timeline`: when each wait and hold began and ended
- `statistics`: numbers and series over a window of time
- `expected_wait`: estimate how long a waiter will still wait
- `simulation`: run jobs against a pool in virtual time
"""
