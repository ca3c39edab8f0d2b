"""The status page that ``serve`` shows at ``/``.

- `routes`: the page's paths and their answers
- `sign_in`: decide who may see the page when the server has a token
- `live`: look at the pools once a second while somebody has the page open
- `editions`: render what was seen, and find the sections that a viewer lacks
- `sections`: the sections of the page: pools, holders, queues, charts and counts
- `document`: build and escape HTML; the frame around the sections
"""
