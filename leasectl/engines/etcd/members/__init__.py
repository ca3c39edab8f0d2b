"""In which pool in etcd a name is, and what is so of it there.

`members` is what the rest goes through. Each time `views` sees all that is written down of some
names, as `records` has it and `stock` for those who wait; a pure function decides what becomes of
them, `changes` says what a transaction makes of that, in `parts` where it is too much for one, and
`writes` writes it.

With it goes what `removals` takes from holders, or the claim of who is `joining`. A release heeds
what `releases` finds; what comes and goes by itself is seen to by `times`. `check` looks whether
all of it agrees, and puts it right.
"""
