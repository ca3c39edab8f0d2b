"""This machine: its clocks, processes, signals, and the ways to wait on it.

Whoever waits sleeps in one poll(2) (`poll`), until a time of a `clock` that suspend doesn't stop,
or until a descriptor wakes it: another process opens and closes a `named_pipe`; another thread sets
a `wakeup`; a process whose life matters ends (`process` says which one it is, `process_watch` keeps
the descriptors, and `process_ends` those of very many); a signal arrives. `signals` come as
descriptors too, so that none strikes between a commit and the line that remembers it. The one wait
that isn't in poll(2), for a lock, is `lock_wait`. `c_signal` is what all this takes of Python. Who
goes on in the `background` ends by itself if nobody has heard of it.

What is due when say `due_times`. What nobody waits for is done `afterwards`. A `program` is run for
what it prints.

What may hang and has no descriptor to poll is done by threads (`request_threads`), one for each
server. How long to pause before what failed is tried again says `backoff`, to all. How modules are
found is in `imports`.
"""
