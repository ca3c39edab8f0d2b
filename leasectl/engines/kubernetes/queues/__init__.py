"""From a request to its turn.

By a view of the pool `turns` says whose turn it is, and for what. Who has to wait puts a `ticket`;
`standing` is what it is told meanwhile. What is over is seen by whoever looks (`observed`), never
by comparing clocks, and so is how fast the pool's `pace` lets grants come. `dead_tickets` go.
"""
