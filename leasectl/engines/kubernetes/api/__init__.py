"""Requests to the API server of a cluster, as the user whom the environment names.

- `address`: parse URLs of places; paths of collections
- `choice`: choose the cluster and user once, and record the choice with the handle
- `kubeconfig`: read kubeconfigs, merge them as kubectl does, and check clusters and users
- `credentials`: run credential plugins; keep credentials until they expire or are refused
- `login`: what a request needs, renewed when files or plugins change it; why we are not let in
- `requests`: the operations of the API, each within a deadline
- `refusals`: map the API server's errors to ours
- `watching`: watches: follow what happens to objects
- `rights`: the rights that leasectl needs, and how to grant them
- `standing`: who we are in the cluster, and what we may do there
"""
