"""The etcd engine: leases give expiry, transactions atomicity, watches hand-off.

Each step is one transaction and leaves the store sound, so a process may be killed after any of
them: a ticket, and a claim that has a ttl, are attached to an etcd lease and go when it runs out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.renewals import EtcdRenewals
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.queues import EtcdQueues
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.waiting.session import WaitSession
from leasectl.engines.etcd.waiting.waiter import EtcdWaiter
from leasectl.model import Claimant, ReleasedBy
from leasectl.system.clock import Clock

WAITER_TTL_SECONDS = 60.0


class EtcdEngine:
    """The pools below one prefix of a cluster.

    Claim keys are unique within their state directory. A request without a ttl is held until it
    is given back; only its ticket has one, so that a dead waiter goes.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        events: Of what happens here.
        claims: The claims in it.
        clock: Where times come from.

    Attributes:
        renewals: Of those claims.
    """

    undoes = False

    def __init__(
        self, gateway: Gateway, keys: Keys, events: EtcdEvents, claims: EtcdClaims, *, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock
        self.renewals = EtcdRenewals(gateway, keys, claims, clock=clock)
        self._queues = EtcdQueues(gateway, keys, events, claims, self.renewals, clock=clock)
        self._session = WaitSession(gateway, clock)

    def atomic(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def waiter(self, claimant: Claimant, *, until: float | None) -> EtcdWaiter:
        ttl = claimant.request.ttl_seconds or WAITER_TTL_SECONDS
        ticket = EtcdTicket(
            claimant,
            self._keys,
            etcd_lease_id=new_etcd_lease_id(),
            ttl_seconds=math.ceil(ttl),
            clock=self._clock,
        )
        limited = partial(self._gateway.limited, until)
        return EtcdWaiter(ticket, self._queues, self._session, limited=limited)

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self._queues.withdraw(claim_key, why)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        return self._claims.free(claim_key, names, by=by)

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        if ttl_seconds is None:
            return self.renewals.renew(claim_key)
        from leasectl.engines.etcd.claims.ttl_changes import EtcdTtlChanges

        changes = EtcdTtlChanges(self._gateway, self._keys, self._claims, clock=self._clock)
        changes.change(claim_key, ttl_seconds)
        return self.renewals.renew(claim_key)

    def claim_keys(self) -> list[str]:
        """The claim keys of this state directory that have claims, sorted."""
        return self._claims.claim_keys()
