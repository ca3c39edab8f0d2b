"""Read and write the objects; each write is guarded by what was read.

- `names`: names of objects, and values of labels
- `objects`: the facts in our Lease objects
- `reading`: parse Lease objects, and check them
- `fields`: read fields that others may have written: checked, and safe to show
- `bodies`: build the bodies of writes
- `resource_bodies`: build the bodies of writes of resources
- `value_objects`: objects of values: parse and build them
- `view`: a pool in memory: a list of its objects, kept up to date by a watch
- `store`: read and write the Leases of one namespace; find lost answers
- `recognition`: tell whether an object is what a write would have made of it
- `edited`: what was edited by hand and contradicts the annotations
"""
