"""``leasectl run``: run a command under a lease.

The command starts only after it is recorded as the handle's guard. So if `run` is killed, either
the command never starts or the lease follows it.

- `runner`: acquire, run, release; repeat if wanted
- `plan`: the plan of a `run`
- `leased_command`: run one command under a handle's lease
- `child`: a child process that waits before it becomes the command
- `tree`: all processes that a command started
- `supervision`: follow a command: forward signals, end it when its lease is lost
- `lease_watch`: renew the lease beside the command, and notice its loss
- `holder_answers`: answer reclaims beside the command
- `keeper_pidfd`: watch the keeper, and start another if it dies
- `start_delay`: spread the starts of commands that were granted at once
- `warden`: a process that ends a command if its starter is killed: that of `once`, and that which
  answers a reclaim; the command of `run` goes on, and the lease follows it
"""
