"""The keeper: is there one when leases wait for it, and does it keep up?"""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.leases.service import Service
from leasectl.state import keeper_process
from leasectl.system.clock import boottime_seconds
from leasectl.text.wording import listed

OVERDUE_SECONDS = 10.0


def keeper(service: Service) -> Finding:
    """Is there a keeper when one is needed, and does it keep up?"""
    state = service.state
    running = keeper_process.running(state)
    log = state.path("keeper.log")
    if not service.handles.any_watched():
        who = "not running, not needed" if running is None else f"running, pid {running.pid}"
        return Finding(OK, who)
    if running is None:
        return Finding(
            WARN,
            "not running, although leases wait for it",
            f"any leasectl command starts it, doctor --fix too; why it ended: {log}",
            mend=lambda: _start_keeper(service),
        )
    now = boottime_seconds()
    overdue = [
        timer.target.handle_id
        for timer in service.handles.timers.armed()
        if timer.due_at < now - OVERDUE_SECONDS
    ]
    if overdue:
        return Finding(
            WARN,
            f"running, pid {running.pid}, but late with releasing {listed(overdue)}",
            f"see why in {log}",
        )
    return Finding(OK, f"running, pid {running.pid}, log in {log}")


def _start_keeper(service: Service) -> str:
    keeper_process.ensure(service.state)
    running = keeper_process.running(service.state)
    return "started it" if running is None else f"started it, pid {running.pid}"
