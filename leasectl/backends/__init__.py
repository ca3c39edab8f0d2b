"""Where leases come from."""
