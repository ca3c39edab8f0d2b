"""What a waiter's steps tell of its request: each end once, and that it was made before that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasectl.engines.kubernetes.events.events import KubernetesEvents
from leasectl.engines.kubernetes.objects.objects import ResourceObject
from leasectl.engines.kubernetes.queues.ticket import OwnTicket
from leasectl.model import Lease


class RequestEvents:
    """The events of one request.

    Args:
        ticket: Its own.
        events: Of what happens in the namespace.
    """

    def __init__(self, ticket: OwnTicket, events: KubernetesEvents) -> None:
        self._ticket = ticket
        self._events = events
        self._made_at: float | None = events.now()  # None once it was told

    def queued(self) -> None:
        """Its ticket was put."""
        own, made_at = self._ticket, self._made_at
        if own.object is not None and made_at is not None:
            self._events.queued(own.claimant, own.object.place, at=made_at)
            self._made_at = None

    def granted(self, leases: Sequence[Lease], resources: Iterable[ResourceObject]) -> None:
        """It has become leases of resources."""
        own = self._ticket
        self._events.granted(
            own.claimant, leases, resources, waited=own.waited, queued_at=self._made_at
        )

    def gave_up(self, why: str) -> None:
        """Its ticket was taken away."""
        own = self._ticket
        if own.object is not None:
            ticket, waited = own.object.place, own.waited
            self._events.gave_up(
                own.claimant, ticket, at=self._events.now(), waited=waited, why=why
            )
