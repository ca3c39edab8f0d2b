"""``http://``: ci-operator's lease proxy, in front of Boskos. `leasectl serve` speaks it, too.

An acquisition: `opening` looks at the address -> `backend` refuses what the protocol has no words
for (`limits`) -> `acquisition` asks for one lease a request, through `one_by_one` -> `connection`
sends it and waits -> `protocol` reads the answer. What was lost on the way is noted, asked for
again, and undone where the server knows of keys. `releases` gives back, name by name, each until it
is certain. The server queues, and renews for the whole job: there is no ttl, and there are no pools
to be shown, but for those that `leasectl serve` tells of by a path of its own (`status`).
"""
