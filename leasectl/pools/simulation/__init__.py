"""What would happen to jobs that come to a pool: the pool algorithm itself, in a virtual time.

A `scenario` is what is tried: `jobs`, and the pool that they come to. Jobs are made up, by when
they come (`arrivals`) and how long they hold (`holds`, in `ranges`), or as files list it
(`job_files`); or they are read out of the events of a pool (`replay`). What might be done about
many starts at once are `policies`.

`running` has the jobs come to a pool on the memory engine under a policy: the code that grants
elsewhere grants here, in the `virtual_time` of thousands of turns in one thread. What came of that
in numbers is an `outcome`; `search` looks for the smallest pace or capacity with the one wanted.
"""
