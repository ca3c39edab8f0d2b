"""In which pool each name is: `members` says and changes it, by what is `known`.

A change of several objects can't be one write: what is to be is written to the name first, and
whoever comes next carries out what a killed process has left. `updates` is what there is yet to do.
A name comes in by `entering`, if what is said beside pools (`belonging`) has it so: at no time is
it in two pools, or in a pool where it mustn't be.
"""
