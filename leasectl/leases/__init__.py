"""The verbs on leases.

- `service`: what verbs work on: state directory, backend, caller; losses
- `request`: turn a request into the record of a new handle
- `acquire`: acquire leases under a new handle
- `acquire_remote`: acquire from a server, where grant and record aren't one transaction
- `journal`: record each step of an acquisition
- `record_events`: events of handles on backends without pools
- `delay`: announce a handle after the grant, and arm its delayed release
- `reacquire`: release what a handle holds and acquire the same again
- `release`: release what a handle holds, or leave the queue
- `release_remote`: release on a server, where release and record aren't one transaction
- `release_forced`: end leases that another job or process holds
- `renew`: renew leases
- `renewal_threads`: renew leases on servers, in threads
- `targets`: find the handles and names that a release means
- `recovery`: give back what dead processes held
- `marks`: the holder's side of a reclaim: marks, uses and answers
- `on_demand`: pools that are made on demand, with one resource each
- `properties`: tell programs the properties of leased resources
"""
