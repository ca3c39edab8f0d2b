"""The queues of pools in Kubernetes: from a request to its turn.

- `turns`: decide whose turn it is, and for what: pure functions
- `ticket`: a ticket, as the process knows it that waits with it
- `observed`: since when others were seen unchanged; clocks of hosts are never compared
- `pace`: a pool's pace, without comparing clocks
- `dead_tickets`: remove tickets whose time is over
- `standing`: a waiter's position and what it waits for
"""
