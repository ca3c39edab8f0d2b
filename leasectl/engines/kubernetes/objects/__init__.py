"""What the objects in Kubernetes say, and how they are read and written.

`names` says what each is called, `objects` what it says. `reading` makes that of a body, by its
`fields`; `bodies` and `resource_bodies` are what is written, and `value_objects` both for values.
The `store` asks and writes, guarded by what was seen, so that nothing that somebody else has
changed is written over, and nothing that was deleted comes back. A list of a pool is a `view`.
After a lost answer `recognition` tells whether it was written; `edited` is what hands have made.
"""
