"""The verbs on leases.

- `service`: what verbs work on: state directory, backend, caller; losses
- `request`: turn a request into the record of a new handle
- `acquire`: acquire leases under a handle, anew or again, and announce or undo the grant
- `journal`: record each step of an acquisition
- `record_events`: events of handles on backends without pools
- `release`: release what a handle holds, or leave the queue, now or later
- `release_forced`: end leases that another job or process holds
- `renew`: renew leases
- `renewal_threads`: renew leases on servers, in threads
- `targets`: find the handles and names that a release means
- `paths`: find a handle by its path, and read copies of names files
- `recovery`: give back what dead processes held
- `marks`: the holder's side of a reclaim: marks, uses and answers
- `on_demand`: pools that are made on demand, with one resource each
- `properties`: tell programs the properties of leased resources
"""
