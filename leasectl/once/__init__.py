"""Work that one does and the others use: ``leasectl once``.

A `work` is a key with its inputs. `doing` has it done as it was `asked`: if no result of it is
kept, it takes the one lease there is on the work, in a pool that is made for that; whoever waited
and finds a result then uses that. Else it does `under_lease` what is to be done: it looks what has
become of the work so far, which are its `rounds` (who failed while who waited, and who died at it:
pure functions, which say whether it is to be run once more), runs the `command`, with its `output`
looked after, and writes down what has come of it, in the step that gives the lease back. All that
is kept are the `results`, each guarded by the fence of the lease; `forgetting` takes one away. Work
that is asked for by what does it, `nesting` finds out.
"""
