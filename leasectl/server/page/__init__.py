"""The page that ``serve`` shows at ``/``: what a person looks at, in any browser.

`routes` has what its paths answer, `sign_in` who may see it where there is a token. `live` looks at
the pools, in a thread of its own and only while somebody has the page open: when something
happened, at most once a second, for all together. What is seen, `editions` makes an `edition` of:
HTML in `sections`, of which a page that is open asks for those that have changed. Their tables are
in `rows` and the last hours in `picture`, whose numbers `history` keeps; `times` go on by
themselves, and all is made with `markup`, which escapes what isn't HTML already. Where
another server only counts, the sections are those of `counts`. `document` has what stands around
that, of `page.html`: the style, and the script that puts sections in their places.
"""
