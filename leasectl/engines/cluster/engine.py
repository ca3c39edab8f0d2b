"""The engine over a cluster store: one object for each resource, ticket and pool; guarded writes.

No transaction is needed: each step is one guarded write, and all objects are sound after it. So a
process may be killed after any step; `claims`, `waiter` and `pools` say what that leaves, and which
process finds it.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from leasectl.engines.cluster.context import Context
from leasectl.engines.rules.events import WITHDRAWN
from leasectl.model import Claimant, Lease, ReleasedBy

if TYPE_CHECKING:  # most commands need few of them
    from leasectl.engines.cluster.waiter import ClusterWaiter
    from leasectl.engines.contract import PoolWaiter
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import EventLog, Members, PoolAdmin
    from leasectl.engines.values import Values


class ClusterEngine:
    """The pools of one place, as `Engine`.

    Claim keys are unique within their state directory. A request without a ttl is held until it
    is given back; only its ticket has one, so that a dead waiter goes.

    Args:
        context: Of that place.
    """

    undoes = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def atomic(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def waiter(self, claimant: Claimant, *, until: float | None) -> ClusterWaiter:
        from leasectl.engines.cluster.ticket import OwnTicket
        from leasectl.engines.cluster.waiter import ClusterWaiter

        return ClusterWaiter(OwnTicket(claimant, self._context), self._context, until=until)

    def claim_all(self, waiters: Sequence[PoolWaiter]) -> tuple[Lease, ...] | None:
        first, *others = cast("Sequence[ClusterWaiter]", waiters)
        return first.claim_with(others)

    def withdraw(self, claim_key: str, why: str = "") -> None:
        context = self._context
        for ticket in context.tickets(claim_key):
            held = context.claimed(claim_key)
            is_served = any(ticket.id.name in each.had_by for each in held)
            told = () if is_served else context.events.withdrawn(ticket, why or WITHDRAWN)
            context.objects.remove(ticket, told)

    def free(
        self, claim_key: str, names: Sequence[str] | None = None, *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        return self._context.claims.free(claim_key, names, by=by)

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        return self._context.renewals.renew(claim_key, ttl_seconds)


class ClusterSides(abc.ABC):
    """The pools of one place, from all sides, as `Sides` has them.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.engine = ClusterEngine(context)

    @property
    def pools(self) -> PoolAdmin:
        from leasectl.engines.cluster.pools import ClusterPools

        return ClusterPools(self.context)

    @property
    def members(self) -> Members:
        from leasectl.engines.cluster.members import ClusterMembers

        return ClusterMembers(self.context)

    @property
    def notes(self) -> Notes:
        from leasectl.engines.cluster.notes import ClusterNotes

        return ClusterNotes(self.context)

    @property
    def values(self) -> Values:
        from leasectl.engines.cluster.values import ClusterValues

        return ClusterValues(self.context)

    @property
    @abc.abstractmethod
    def events(self) -> EventLog:
        """What is kept of the events there."""
