"""What would happen to jobs that come to a pool: the pool algorithm itself, in a virtual time.

`virtual_time` runs thousands of turns in one thread and lets no real time pass. `jobs` are what
comes: when, by `arrivals`, and for how long, by `holds`, or as files list it (`job_files`). What
might be done about many starts at once are `policies`; `running` has the jobs come to a pool on the
memory engine under one of them.
"""
