"""The queues of the embedded pools: is there anybody in them who doesn't come?"""

from __future__ import annotations

from leasectl.backends.kinds import LOCAL
from leasectl.backends.opening import open_backend
from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.local import audit
from leasectl.leases.service import Service
from leasectl.pools.unmet_waiters import unmet_waiters
from leasectl.state.snapshot import snapshot
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead
from leasectl.text.wording import counted, listed


def suspended(service: Service) -> Finding:
    """Which waiters could have claimed, and didn't come?"""
    living = [each for each in audit.suspended_tickets(service.state) if not is_dead(each.process)]
    unmet = _unmet(service) if living else set()
    found = [each for each in living if (each.pool_type, each.holder_identity) not in unmet]
    if not found:
        return Finding(OK, "nobody keeps others waiting who doesn't run")
    waiters = [
        f"pid {each.process.pid if each.process else 'unknown'} of {each.holder_identity} for "
        f"{each.pool_type}"
        for each in found
    ]
    return Finding(
        WARN,
        f"{counted(len(found), 'waiter')} that could have claimed and didn't come, so that others "
        f"pass: {listed(waiters)}",
        "stopped, or in a frozen container? It keeps its place, and goes on in it when it is "
        "continued: kill -CONT PID",
    )


def _unmet(service: Service) -> set[tuple[str, str]]:
    """The pools and identities of those who are passed as what is there can't meet them now."""
    backend = open_backend(
        LOCAL, service.state, settings="", lost=lambda claim_key, names: None, clock=Clock()
    )
    with snapshot(service.state):  # nothing is changed, and what is over is no matter here
        pools = backend.pools.pools()
    return {
        (pool.type, each.entry.holder_identity) for pool in pools for each in unmet_waiters(pool)
    }
