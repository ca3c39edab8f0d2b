"""Servers that are asked over HTTP: the only folder that knows the network.

A request that can be given up: its asker says what it wants (`messages`) and waits in poll(2)
(`exchange`), with a deadline, beside whatever else may end the wait -> a thread that is kept
(`worker`) sends it and reads the answer (`transport`) over a `connection`, in HTTP/1.1 (`http1`),
or, where a proxy is in the way, over httpx (`proxied`); on a connection that is there already the
asker does so himself -> giving up closes the connection under it, or first our half of it, so that
what was granted meanwhile is still heard. A stream is read by its asker, and ended by anybody. What
went wrong is said by one error (`no_answer`).

What a handle's record keeps of how to talk to a server is `settings`, which name files
(`named_file`) and hold no secrets. Of them `tls` makes whom to trust and what to show, and `pem` of
what is in no file; `trust` looks before each request whether they are still the same files.
"""
