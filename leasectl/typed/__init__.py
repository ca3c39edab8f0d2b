"""What is said of types and facts, at next to no cost when it runs.

`typing` and what it loads take as long as a quarter of Python's start, and all but a few of its
names are only ever read by people and by type checkers. For those, `hints` has the names of
`typing` itself, and `tuples` its tuples with names; a process that runs gets what stands in for the
first, and the second made in a sixth of the time.

Everything else is above this folder, and nothing here imports anything of ours.
"""
