"""Keep claims that etcd ended too early, while their holders may use them.

etcd may end a lease early, when somebody revokes it, and before 3.4.31 and 3.5.13 also when a
leader that was stopped goes on (https://github.com/etcd-io/etcd/issues/15247). The holder finds
that out by its next renewal and may use what it holds until then: for a ttl from the date of its
last renewal. Dates are compared for that, and waited for no longer than a ttl, whatever clocks say.

That ttl begins when somebody first sees that the claim has gone. Two keys say so: one stays as long
as the claim is written down, one goes with an etcd lease of that ttl. They are written at once. So
where the first is without the second the ttl is over, whoever began it and whatever became of it.
"""

from __future__ import annotations

import contextlib
import math

from leasectl.engines.etcd.claims.view import ClaimView
from leasectl.engines.etcd.gateway.answers import EtcdLeaseGone
from leasectl.engines.etcd.gateway.gateway import ROUNDED_SECONDS, Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import KeyValue, absent, present, put
from leasectl.engines.etcd.key_values import etcd_lease_id_in, number_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.records import Claim
from leasectl.system.clock import Clock


class EarlyEnds:
    """The claims of a cluster that have gone.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        clock: Where times come from.
    """

    def __init__(self, gateway: Gateway, keys: Keys, *, clock: Clock) -> None:
        self._gateway = gateway
        self._keys = keys
        self._clock = clock
        self._latest: dict[ClaimId, float] = {}  # until when they are kept at most

    def kept_until(self, claim_id: ClaimId, claim: Claim, view: ClaimView) -> float | None:
        """Until when a claim that has gone is kept; who sees it first writes that down.

        Args:
            claim_id: Which.
            claim: As it is written down still.
            view: All that is written down about it.

        Returns:
            A time to come, on the elapsed clock; None when the claim is over.
        """
        seen, left = self._keys.gone_seen(*claim_id), 0.0
        kept = [kv for kv in view.gone.items if kv.key != seen]
        if view.renewed is not None and (kept or not view.gone.items):
            left = claim.seconds_left(number_in(view.renewed), self._clock.wall())
        if claim.ended and kept:  # by force: then etcd counts what was left of its time
            left = claim.lease_duration_seconds or 0.0
        if left and claim_id not in self._latest:
            longest = self._time_left(kept[0]) if kept else self._begin(claim_id, claim)
            self._latest[claim_id] = self._clock.elapsed() + longest
        now = self._clock.elapsed()
        until = min(now + left, self._latest.get(claim_id, now))
        if until > now:
            return until
        self._latest.pop(claim_id, None)
        return None

    def _time_left(self, kept: KeyValue) -> float:
        """What is left of the ttl that somebody has begun, in seconds."""
        return self._gateway.time_left(etcd_lease_id_in(kept)) + ROUNDED_SECONDS

    def _begin(self, claim_id: ClaimId, claim: Claim) -> float:
        """Have the ttl begin, unless somebody just has or the claim is freed; returns its seconds.

        An etcd lease that nothing is attached to ends by itself; so it doesn't matter who is first.
        """
        assert claim.lease_duration_seconds is not None
        keys, keeping_id = self._keys, new_etcd_lease_id()
        seen, kept = keys.gone_seen(*claim_id), keys.gone_kept(*claim_id, keeping_id)
        self._gateway.grant(keeping_id, math.ceil(claim.lease_duration_seconds))
        with contextlib.suppress(EtcdLeaseGone):  # who looks next begins it
            self._gateway.commit(
                [present(keys.held(*claim_id)), absent(seen)],
                [put(seen, ""), put(kept, "", etcd_lease_id=keeping_id)],
            )
        return claim.lease_duration_seconds
