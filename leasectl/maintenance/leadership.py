"""Elect one of several replicas, as client-go does.

A leader's time counts from the sending of its last renewal that was answered; its work has to be
done before that time is over. Another replica takes the lease once it has seen it unchanged for as
long as it lasts. A replica that ends by itself gives the lease back.
"""

from __future__ import annotations

from leasectl.maintenance.api_cluster import Cluster
from leasectl.maintenance.facts import Lease, Observed
from leasectl.maintenance.objects import Json, parse_lease
from leasectl.system.clock import Clock

LEASE_NAME = "leasectl-maintenance.reconcile"
TTL_SECONDS = 15
RENEW_SECONDS = 4.0
# So long before its time is over a leader does nothing more.
_MARGIN_SECONDS = 2.0
# After somebody else was the faster.
_AGAIN_SECONDS = 0.2


class Leadership:
    """Whether this replica leads.

    Args:
        cluster: Where the lease is.
        identity: Of this replica, and of no other.
        clock: Where times come from.

    Attributes:
        due_at: When to look again, on the elapsed clock.
        leader: The identity of the leader, as far as it is known; empty for none.
        reign: Grows whenever it leads again after a time in which another may have led.
    """

    def __init__(self, cluster: Cluster, identity: str, clock: Clock) -> None:
        self.due_at = 0.0
        self.leader = ""
        self.reign = 0
        self._cluster = cluster
        self._identity = identity
        self._clock = clock
        self._observed = Observed()
        self._until = 0.0

    def has_seconds(self, seconds: float) -> bool:
        """Whether it leads, and will for so long whatever becomes of its next renewal."""
        return self._clock.elapsed() + seconds <= self._until

    def turn(self) -> None:
        """Renew the lease, or take it if it has no holder.

        Raises:
            BackendUnreachable: No answer.
        """
        now = self._clock.elapsed()
        self.due_at = now + RENEW_SECONDS
        read = self._cluster.lease(LEASE_NAME)
        before = None if read is None else parse_lease(read)
        if before is not None and before.holder != self._identity:
            # Since its answer: it may have been renewed right before that, long after we asked.
            seen_at = self._clock.elapsed()
            before = self._observed.observe(LEASE_NAME, before, seen_at)
            if before.may_be_valid():
                self.leader, self._until = before.holder, 0.0
                left = before.duration_seconds - before.unchanged_seconds
                self.due_at = min(self.due_at, seen_at + left)
                return
        self._take(read, before)

    def _take(self, read: Json | None, before: Lease | None) -> None:
        sent_at, wall = self._clock.elapsed(), self._clock.wall()
        if before is None:
            lease = Lease(self._identity, TTL_SECONDS, wall, wall)
        elif before.holder == self._identity:
            lease = before._replace(renewed_at=wall, duration_seconds=TTL_SECONDS)
        else:
            lease = Lease(self._identity, TTL_SECONDS, wall, wall, before.transitions + 1)
        if self._cluster.write_lease(LEASE_NAME, read, lease) is not None:
            self.leader = self._identity
            self.reign += not self.has_seconds(0)
            self._until = sent_at + TTL_SECONDS - _MARGIN_SECONDS
        else:
            self._until, self.due_at = 0.0, sent_at + _AGAIN_SECONDS

    def resign(self) -> None:
        """Give the lease back, if it is ours.

        Raises:
            BackendUnreachable: No answer; it ends by itself.
        """
        self._until = 0.0
        read = self._cluster.lease(LEASE_NAME)
        before = None if read is None else parse_lease(read)
        if before is not None and before.holder == self._identity and before.duration_seconds:
            given_back = before._replace(duration_seconds=0, renewed_at=self._clock.wall())
            self._cluster.write_lease(LEASE_NAME, read, given_back)
