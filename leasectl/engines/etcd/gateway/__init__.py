"""A request to a cluster of etcd, which is answered by whichever member can.

`gateway` has a method for each thing that etcd does. What it is given is made, and what comes back
is read, by `requests`. Member by member, until one answers or the time is over, `access` asks: with
a token for the user that `user` reads, where etcd wants one, and through `leasectl.http.exchange`.
`answers` tells what a member's answer says, and `failures` why nobody gave one that counts. Who
has much to read has `ahead` make the next request meanwhile.

Any request may be repeated, because an answer that was lost says nothing: see `gateway`.
"""
