"""The status page that ``serve`` shows at ``/``.

- `routes`: the page's paths and their answers
- `sign_in`: decide who may see the page when the server has a token
- `live`: look at the pools once a second while a browser shows the page
- `history`: the last day of each pool, from its events
- `editions`: render what was seen, and find the sections that a viewer lacks
- `view`: what a viewer wants to see: pool, search, order, time range
- `sections`: the sections of the page: what is in them, in which order, for which views
- `pictures`: where lines, areas and bars of charts and timelines stand
- `document`: render templates to HTML; the headers of the page

The templates stand beside them: `page.html` is the frame, with the style and the script.
"""
