"""Takes, holds and gives back leases on scarce resources, for CI step scripts."""

__version__ = "0.1.0"
