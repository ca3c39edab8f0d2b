"""``leasectl+http://``: a `leasectl serve`, over the extension of its HTTP API.

- `protocol`: paths, calls, and their JSON
- `connection`: send calls
- `sides`: the server's pools, members, notes, values and events
- `watch`: long polls in a thread
- `backend`: leases from the server
"""
