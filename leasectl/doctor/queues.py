"""The queues of the embedded pools: is there anybody in them who doesn't come?"""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.local import audit
from leasectl.leases.service import Service
from leasectl.system.process import is_dead
from leasectl.text.wording import counted, listed


def suspended(service: Service) -> Finding:
    """Which waiters could have claimed, and didn't come?"""
    found = [each for each in audit.suspended_tickets(service.state) if not is_dead(each.process)]
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
