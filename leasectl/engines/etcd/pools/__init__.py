"""The pools in etcd.

- `pools`: make, change, show and delete pools
- `listing`: list pools and their names
- `settings`: change a pool's settings, and undo what the old ones caused
- `removals`: remove whole pools, with the leases in them
- `shown`: read a pool as it is shown, at one revision
"""
