"""The rules of pools: pure functions that every engine calls.

- `turns`: the order of a queue, which waiter blocks which, and what a ticket may take
- `pace`: when the next grant is due
- `membership`: in which pool a name is, and when a membership ends
- `possible`: match requests with resources; find whether a request can ever be met
- `events`: the parts of events, and the texts they are shown with
"""
