"""The commands, a file each with what is typed as its name: `acquire`, `pool_create`.

Each reads thus: what it takes, its help, then parse, open the service, call one verb of
`leasectl.leases`, `leasectl.pools`, `leasectl.run`, `leasectl.once`, `leasectl.reclaim` or
`leasectl.maintenance`, and show what came of it. `leasectl.cli.root` has them in their order.
"""
