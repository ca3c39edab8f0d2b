"""A command under a lease: ``leasectl run``.

The `runner` carries out a `plan`. Each attempt: it acquires; forks the command as a `child`, which
waits on a pipe; a `leased_command` records the child as the handle's guard, and only then lets it
begin, after a `start_delay` if one is wanted. So whenever `run` is killed, either the command never
starts or the lease follows it; one that must not outlive us has a `warden`, told what is `wanted`
of it. The supervisor (`supervision`) follows the command to its end: passes signals on, and ends it
when its lease is lost. Beside it the `lease_watch` renews, and knows until when nobody else can
have been granted the lease; `holder_answers` says what can be given back when a reclaim asks; the
`keeper_pidfd` has another keeper started should the one die that the handle needs. At the end the
handle is released, and `run` ends as the command did.
"""
