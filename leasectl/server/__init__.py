"""`leasectl serve`: the lease proxy's protocol in front of a backend. Needs leasectl[serve]."""
