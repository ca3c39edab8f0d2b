"""The pools in Kubernetes.

- `pools`: make, change and delete pools
- `deletions`: delete pools, and finish what a killed process left
- `listing`: list pools and their names
- `shown`: read pools as they are shown, from one list
- `values`: values under keys: an object for each
"""
