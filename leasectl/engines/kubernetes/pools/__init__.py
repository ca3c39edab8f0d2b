"""The pools themselves: `pools` makes and changes them, `deletions` deletes them.

`listing` says which there are, and `shown` what is in them, as of one time: what they have, who
holds it, who waits. Beside them `values` are kept, which a claim or nobody guards: the results of
`once`, marks, what a program wants to find again. A pool that is held by somebody isn't deleted.
"""
