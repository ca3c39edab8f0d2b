"""Pools in Kubernetes: Leases of its own API in one namespace, with nothing to install.

Whatever is asked of a cluster goes through `api`, which knows where it is and who we are there. It
is told by uid and resourceVersion which object is meant, and as it was read: so nothing that
somebody else has changed is written over, and nothing that was deleted comes back.
"""
