"""Requests to the API server of a cluster, as the user whom the environment names.

- `address`: parse ``kubernetes://NAMESPACE?context=NAME&kubeconfig=PATH``
- `choice`: choose the cluster and user once, and record the choice with the handle
- `kubeconfig`: read kubeconfigs, and merge them as kubectl does
- `entries`: check a kubeconfig's clusters and users; refuse what isn't known
- `plugins`: run credential plugins that a kubeconfig names
- `credentials`: credentials from plugins, until they expire or are refused
- `login`: open the API; credentials for requests, renewed when files or plugins change them
- `access`: what one request needs; whether a server lets us in
- `collection`: paths of collections, and words for messages about them
- `requests`: the operations of the API, each within a deadline
- `asking`: send one request, and repeat it where that is safe
- `refusals`: map the API server's errors to ours
- `watching`: watches: follow what happens to objects
- `rights`: the rights that leasectl needs, and how to grant them
- `standing`: who we are in the cluster, and what we may do there
"""
