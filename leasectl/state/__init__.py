"""The state directory: what the processes of one user on one machine share.

A change is one transaction under one file lock. Names files and wake-ups follow the commit.

- `directory`: the state directory and its transactions
- `in_memory`: the same tables in memory, for simulations and tests
- `database`: open the directory, the lock file and the database; reserve fences in blocks
- `schema`: the tables, format 1, and how a database with them is created
- `rows`: read and write rows, and the facts in them
- `handles`: records of handles: read, write, change, purge
- `timers`: delayed releases, and releases under way
- `uses`: what is in use, and what others want back
- `names_files`: the names files that scripts read
- `shared_leases`: ``$SHARED_DIR/leases``: what later steps give back
- `named_pipe`: a pipe by which another process ends a sleep
- `pipes`: the files that killed waiters left, and the handles of dead processes
- `watched`: what the keeper looks after
- `keeper_process`: find, start, wake and replace the keeper
- `event`: the kinds of events
- `event_rows`: write and trim events
- `event_log`: read and follow events
- `read_only`: read the database without opening the directory
- `reads`: read much of the database as of one instant, for `doctor`, `status` and the engine
"""
