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
- `overview`: the view model of pools, their holders and their queues
- `overview_builder`: build it from the store and the records
- `overview_json`: encode it as JSON, and parse it
- `status`: the status of a backend, whatever it can tell
- `counted`: counts of a server that lists no resources
- `history`: read events, from a backend or from JSON
- `timeline`: when each wait and hold began and ended
- `lease_bars`: leases over time
- `statistics`: numbers and series over a window of time
- `chart_axes`: the axes of charts, and the colours
- `expected_wait`: estimate how long a waiter will still wait
- `simulation`: run jobs against a pool in virtual time
"""
