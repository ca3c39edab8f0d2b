"""``http://``: ci-operator's lease proxy, or `leasectl serve`.

- `backend`: the lease proxy as a backend
- `protocol`: build its requests, and parse its answers
- `connection`: send requests, and wait for answers
- `acquisition`: acquire: keys, lost answers, late grants
- `releases`: release by name, or by key
- `status`: pools behind a `leasectl serve`
"""
