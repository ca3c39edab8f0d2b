"""The Kubernetes engine: one object for each resource, ticket and pool; guarded writes.

There is no transaction: each step is one write to one object, and leaves all of it sound, so a
process may be killed after any of them (`claims`, `waiting.waiter`, `pools` say what that leaves,
and who finds it).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.objects.objects import TicketObject
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.model import Claimant, ReleasedBy
from leasectl.system.clock import Clock

if TYPE_CHECKING:  # most commands wait for nothing, and renew nothing
    from leasectl.engines.kubernetes.claims.renewals import Renewals
    from leasectl.engines.kubernetes.queues.observed import Observed
    from leasectl.engines.kubernetes.waiting.session import WaitSession
    from leasectl.engines.kubernetes.waiting.waiter import KubernetesWaiter

WAITER_TTL_SECONDS = 60.0


class KubernetesEngine:
    """The pools of one namespace.

    Claim keys are unique within their state directory. A request without a ttl is held until it
    is given back; only its ticket has one, so that a dead waiter goes.

    Args:
        store: The Leases of the namespace.
        observed: What was seen of others' lives.
        claims: The claims there.
        clock: Where times come from.
    """

    undoes = False

    def __init__(self, store: Store, observed: Observed, claims: Claims, *, clock: Clock) -> None:
        self._store = store
        self._observed = observed
        self._claims = claims
        self._clock = clock
        self._lock = threading.Lock()
        # Under the lock:
        self._session: WaitSession | None = None
        self._renewals: Renewals | None = None

    @property
    def session(self) -> WaitSession:
        """Of all who wait in this process."""
        from leasectl.engines.kubernetes.waiting.session import WaitSession

        with self._lock:
            if self._session is None:
                self._session = WaitSession(self._store, self._observed, self._clock)
            return self._session

    @property
    def renewals(self) -> Renewals:
        """Of those claims."""
        from leasectl.engines.kubernetes.claims.renewals import Renewals

        with self._lock:
            if self._renewals is None:
                self._renewals = Renewals(self._store, self._claims, clock=self._clock)
            return self._renewals

    def atomic(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def waiter(self, claimant: Claimant, *, until: float | None) -> KubernetesWaiter:
        from leasectl.engines.kubernetes.queues.ticket import OwnTicket
        from leasectl.engines.kubernetes.waiting.waiter import KubernetesWaiter

        ticket = OwnTicket(
            claimant,
            self._store.with_state_id(claimant.claim_key),
            ttl_seconds=claimant.request.ttl_seconds or WAITER_TTL_SECONDS,
            clock=self._clock,
        )
        return KubernetesWaiter(
            ticket,
            self._store,
            self._claims,
            self._observed,
            self.session,
            until=until,
            clock=self._clock,
        )

    def withdraw(self, claim_key: str, why: str = "") -> None:
        written = self._store.with_state_id(claim_key)
        for raw in self._store.of_claim(claim_key, "ticket").items:
            ticket = parse_object(raw)
            if isinstance(ticket, TicketObject) and ticket.claim_key in (written, ""):
                held = self._claims.of_key(claim_key)
                is_served = any(ticket.id.name in each.had_by for each in held)
                taken = self._store.take_away(ticket.id, as_seen=False)
                if taken == "done" and not is_served:
                    self._claims.events.withdrawn(ticket, why)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        return self._claims.free(claim_key, names, by=by)

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        return self.renewals.renew(claim_key, ttl_seconds)
