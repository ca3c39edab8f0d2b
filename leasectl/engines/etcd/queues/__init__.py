"""The queues of pools in etcd: from a request to its turn.

- `entrance`: check that a request can be met, and put its ticket
- `queues`: each step of a ticket, until it has become a claim
- `ticket`: a ticket, as the process knows it that waits with it
- `look`: read everything that a ticket's turn depends on, at one revision
- `glance`: read only what a grant changes, once the ticket before has gone
- `view`: what a ticket sees of its queue at one revision
- `rank`: the order by priority, and the guards that keep it
- `competing`: what better tickets leave for this one: pure functions
- `pace`: a pool's pace, without comparing clocks
- `possible`: whether a pool could meet a request, and if not, why
- `standing`: a waiter's position and what it waits for
- `withdrawals`: remove tickets that never became a claim, and record why
"""
