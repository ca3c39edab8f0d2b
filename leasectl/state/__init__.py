"""The state directory: what one user's processes on one machine know together, and nobody else.

A command opens it: `directory` checks whose it is and opens its `database`, which `creation` makes
by `schema`, and `migrations` bring to this version. A change is one transaction under one lock,
which is a `lock_file`: `handles` change the records, written and read as `handle_rows`, which are
`rows` as those of other tables, with their `timers`, and `amendments` what is said of one that
goes on; `names_files` follow right after the commit, or are made up for by the next to come; then
who was to be woken hangs on its named pipe, and those that nobody reads any more are known to
`pipes`. No fence is given twice, whatever is lost of the log, since `fences` reserves them in
blocks, and `reboot` forgets times that begin anew. What happened is an `event`, written as one of
the `event_rows` in the transaction of the change, whereupon `event_trimming` wakes who follows and
removes what is old; `event_log` reads them. Why a folder won't do say the `refusals`. What is to
happen without a command does the keeper: `keeper_process` finds, starts and wakes it,
`keeper_version` has one of another version make way, and `watched` tells it what has changed of
what it sees to. `releasing` says which names are just on their way back to a server, `stays` which
the keeper has to keep in their pools there, `made_pools` which are to go with who uses them,
`leftovers` whose handles are the dead's, `singled_out` of which there is more to say, and
`purging` forgets what is over; `uses` holds what is in use against what somebody wants back.
`shared_leases` is the one list outside the directory. Much that belongs together is read in a
`snapshot`. `soundness` and `read_only` are for those who only look: `doctor`, servers, and
completion.
"""
