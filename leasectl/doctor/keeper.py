"""Check that a keeper runs where one is needed, and keeps up."""

from __future__ import annotations

import os

from leasectl.doctor.findings import Finding, ok, warn
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system.clock import boottime_seconds
from leasectl.system.process import open_files
from leasectl.system.signals import pause
from leasectl.text.wording import listed

OVERDUE_SECONDS = 10.0
# One that has just been started has no pipe yet.
_STARTS_IN_SECONDS = 3.0
_LOOK_SECONDS = 0.05


def keeper(service: Service) -> Finding:
    """Is there a keeper when one is needed, can it be woken, and does it keep up?"""
    state = service.state
    running = keeper_process.running(state)
    log = state.path("keeper.log")
    if not service.handles.any_watched():
        who = "not running, not needed" if running is None else f"running, pid {running.pid}"
        return ok(who)
    if running is None:
        return warn(
            "not running, although leases need it",
            f"any leasectl command starts it, also doctor --fix; the log says why it ended: {log}",
            mend=lambda: _start_keeper(service),
        )
    if not _hears(state, running):
        return warn(
            f"running, pid {running.pid}, but its pipe {keeper_process.pipe_path(state)} is gone, "
            "so commands can't wake it",
            "run: leasectl doctor --fix",
            mend=lambda: _call(state),
        )
    folder = keeper_process.missing_code(running)
    if folder is not None:
        return warn(
            f"running, pid {running.pid}, but its code in {folder} was removed",
            "any leasectl command that needs a keeper starts a new one, also doctor --fix",
            mend=lambda: _start_keeper(service),
        )
    now = boottime_seconds()
    overdue = [
        timer.target.handle_id
        for timer in service.handles.timers.armed()
        if timer.due_at < now - OVERDUE_SECONDS
    ]
    if overdue:
        return warn(
            f"running, pid {running.pid}, but late with releasing {listed(overdue)}",
            f"the log says why: {log}",
        )
    return ok(f"running, pid {running.pid}, log in {log}")


def _start_keeper(service: Service) -> str:
    keeper_process.ensure(service.state)
    running = keeper_process.running(service.state)
    return "started it" if running is None else f"started it, pid {running.pid}"


def _hears(state: State, keeper: Process) -> bool:
    """Does the keeper read the pipe of its name, or will in a moment?

    The pipe isn't asked: that would wake it.
    """
    until = boottime_seconds() + _STARTS_IN_SECONDS
    while not _reads(keeper.pid, keeper_process.pipe_path(state)):
        if boottime_seconds() >= until:
            return False
        pause(_LOOK_SECONDS)
    return True


def _reads(pid: int, path: str) -> bool:
    try:
        pipe = os.stat(path)
    except OSError:
        return False
    try:
        return any(os.path.samestat(file, pipe) for _, file in open_files(pid))
    except OSError:
        return True  # what it has open can't be told here


def _call(state: State) -> str:
    before = keeper_process.running(state)
    with state.transaction():
        keeper_process.wake(state)
    now = keeper_process.running(state)
    if now is None or now == before:
        return "the keeper created its pipe again"
    return f"this state directory is a copy; started a keeper for it, pid {now.pid}"
