"""Run jobs against a pool: the real pool algorithm in virtual time.

- `scenario`: what is simulated: jobs, a pool, policies
- `jobs`: generate jobs, or read them from files
- `replay`: read jobs from a pool's events
- `policies`: policies that spread starts
- `running`: run the jobs, and compute the outcome
- `search`: find the smallest pace or capacity with a wanted outcome
"""
