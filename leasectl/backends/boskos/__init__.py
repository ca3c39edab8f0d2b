"""Boskos, which shares resources out by HTTP: what boskosctl and a script around it do.

An acquisition: `opening` looks at the `address`, which says what Boskos can't be asked, and at the
`login` -> `backend` refuses what there are no words for (`limits`) -> as an `owner` of its own
`acquisition` asks for one after the other, through `one_by_one`, each again and again under one
request id -> `requests` has what is sent, `connection` sends it, `answers` reads what comes. An
answer that is lost may have carried a grant that nobody can name: `losses` counts what the owner
has before anything is asked again, and what is lost is left to the reaper. Whether there is such a
type or name, `missing` finds out, and how long a server may be away, `outage` knows.

What is held is renewed and given back by `holding`, to which nothing of another owner's can happen.
Pools are Boskos' own: `status` tells how many there are and whose.
"""
