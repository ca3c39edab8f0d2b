"""Claims in Kubernetes: make, renew and end them.

- `claims`: make and give back claims, one guarded write for each resource
- `new_claims`: what a new claim writes to each resource
- `late_writes`: find claims whose write got no answer, and undo them
- `renewals`: renew a claim: one guarded write for each resource, without a read
- `forced_ends`: end claims by force, while their holders may still use them
- `notes`: notes at claims: an annotation beside each
- `notes_at`: read notes together with claims
"""
