"""One participant's access to the pools in a namespace, as a service account's process has it."""

from __future__ import annotations

from pathlib import Path

from leasectl.backends.contract import Patience
from leasectl.backends.kubernetes import KubernetesBackend
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.kubernetes.posting import Posting
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import Clock
from tests.kit.recorded import NoJournal
from tests.kit.waits import PATIENCE_SECONDS

CLOCK = Clock()


class Access:
    """What one process has of a namespace.

    Args:
        kubeconfig: The path of its kubeconfig, which names the namespace.
        state_id: The host and its state directory, as it were.
        tells_events: It sends events, as commands do.
    """

    def __init__(
        self, kubeconfig: Path, *, state_id: str = "host", tells_events: bool = False
    ) -> None:
        choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
        api = Api(
            choice,
            clock=CLOCK,
            deadline_seconds=PATIENCE_SECONDS,
            attempt_seconds=PATIENCE_SECONDS / 5,
        )
        opened = open_kubernetes(
            api,
            choice.namespace,
            state_id=state_id,
            clock=CLOCK,
            posting=Posting(api, choice.namespace, clock=CLOCK) if tells_events else None,
        )
        self.engine, self.pools = opened.engine, opened.pools
        self.members = opened.members
        self.backend = KubernetesBackend("kubernetes:", self.engine, opened, clock=CLOCK)

    def acquire(self, claim_key: str, request: Request) -> tuple[Lease, ...]:
        """Acquire, however long that takes."""
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request)
        journal = NoJournal()
        self.backend.acquire(claimant, journal, Patience())
        return journal.leases or ()

    def queue(self, pool_type: str = "T") -> list[str]:
        """The claim keys of those who wait."""
        (pool,) = self.pools.pools(pool_type)
        return [entry.claim_key for entry in pool.queue]
