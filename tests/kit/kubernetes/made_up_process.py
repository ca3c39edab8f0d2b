"""Kubernetes' engine on a made-up API server, as tests of it open it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import Clock
from tests.kit.kubernetes.made_up_api import MadeUpApi


class Process:
    """A process that uses one namespace.

    Args:
        api: The server.
        clock: Its own.
        observed: The file that it shares with the others of its state directory.
        state_id: Of that directory.
    """

    def __init__(
        self, api: MadeUpApi, clock: Clock, observed: Path | None = None, state_id: str = "state"
    ) -> None:
        self.lost: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.opened: Opened = open_kubernetes(
            cast("Api", api),
            "ns",
            state_id=state_id,
            observed_path=None if observed is None else str(observed),
            lost=self._note_lost,
            warn=self.warnings.append,
            clock=clock,
        )
        self.engine, self.pools = self.opened.engine, self.opened.pools
        self.members = self.opened.members

    def _note_lost(self, claim_key: str, names: Sequence[str]) -> None:
        self.lost += [(claim_key, name) for name in names]

    def acquire(self, key: str, request: Request) -> tuple[Lease, ...]:
        """Acquire without waiting; empty if there is too little."""
        waiter = self.engine.waiter(Claimant(key, f"job/1/host/{key}", request), until=None)
        try:
            waiter.enqueue()
            leases = waiter.claim().leases
            if leases is None:
                waiter.dequeue()
            return leases or ()
        finally:
            waiter.close()

    def recover(self, key: str) -> None:
        """Recover what a dead process has left."""
        self.engine.withdraw(key)
        self.engine.free(key)

    def held(self) -> dict[str, str]:
        """The holders of all resources."""
        return {
            each.name: each.lease.holder_identity
            for pool in self.pools.pools()
            for each in pool.resources
            if each.lease
        }
