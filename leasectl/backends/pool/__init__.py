"""The pool algorithm, over any engine.

A turn is a generator that yields its sleeps: a process does one after the other, a server thousands
at once.

- `backend`: the backend over an engine
- `turn`: one acquisition, from its ticket to its leases or its end
- `either`: wait in the queues of several pools at once
- `closed`: explain why free resources can't be had
- `withdrawals`: withdraw requests of other processes, on any machine
"""
