"""For how long leases have been seen as they are: all that is known of whether another's is valid.

The clocks of others are never compared with ours. Whoever has just been started has seen nothing.
"""

from __future__ import annotations

from leasectl.maintenance.facts import Lease


class Observed:
    """What has been seen of leases, by name."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Lease, float]] = {}

    def unchanged_seconds(self, name: str, lease: Lease, now: float) -> float:
        """For how long a lease has been like this, as it is seen once more.

        Args:
            name: Of the lease.
            lease: As it is, whatever that says of this time.
            now: On the elapsed clock.
        """
        lease = lease._replace(unchanged_seconds=0.0)
        before, since = self._since.get(name, (None, now))
        if before != lease:
            since = now
        self._since[name] = (lease, since)
        return now - since
