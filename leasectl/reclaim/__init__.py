"""Taking leases back by handshake, on the operator's side: ``leasectl reclaim``.

What is `wanted` is said once, and `opening` finds what it is done on. A `look` shows the leases of
a pool as they are `held`, with what is noted at them and what of them is seen to be in use. The
`plan` says what is to be done next, and when to look again: a pure function of what is wanted,
seen, remembered, and the time; which come first is a `choice`. What it says is done by
`carrying_out`, each thing guarded by the fence and by the text that was seen, and `taking_back`
goes round until all is back, or no time is left. `removal` is a reclaim of resources that are to
leave their pool with it.

How holders answer is `leasectl.leases.marks`. A lease whose holder says nothing is never freed.
"""
