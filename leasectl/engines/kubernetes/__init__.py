"""Pools in Kubernetes: the cluster engine over Lease objects of one namespace; nothing to install.

- `opening`: open the engine for a namespace; handle a cluster restored from a backup
- `objects`: read, write and watch Leases; find lost answers
- `names`: names of objects, labels and annotations
- `encoding`: encode facts as Leases; parse Leases, and check them
- `edited`: what was edited by hand and contradicts the annotations
- `posting`: post events to the cluster
- `event_log`: read events of the cluster and of this machine, each once, and follow new ones
- `own_record`: record events in the state directory
- `api`: requests to the API server
"""
