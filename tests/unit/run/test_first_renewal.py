"""A lease may have been granted long before its command starts: hence a renewal right before."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.backends.contract import Patience
from leasectl.model import Process, Request
from leasectl.run import leased_command as module
from leasectl.run.lease_watch import LeaseWatch
from leasectl.run.plan import Plan
from leasectl.run.runner import Runner
from leasectl.system.process import identify
from tests.kit.desk import Desk

TTL = 30.0
START = 1000.0  # of a manual clock


pytestmark = pytest.mark.usefixtures("signals_as_before")


def run_after(
    desk: Desk,
    seconds: float,
    request: Request,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    forked: list[int],
) -> list[float | None]:
    """Run a command that long after its lease was granted.

    Args:
        forked: Takes the pid of the process that is to become the command.

    Returns:
        When the lease runs out, as the pool has it while the command runs.
    """
    seen: list[float | None] = []

    def after_a_while(pid: int) -> Process:
        forked.append(pid)
        desk.time.advance(seconds)
        return identify(pid)

    class Watch(LeaseWatch):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            rows = desk.state.query("SELECT expires_at FROM resource")
            seen.extend(expires_at for (expires_at,) in rows)

    monkeypatch.setattr(module, "identify", after_a_while)
    monkeypatch.setattr(module, "LeaseWatch", Watch)
    plan = Plan(("sh", "-c", command), request, environ={"PATH": "/usr/bin:/bin"})
    runner = Runner(
        lambda: desk.service,
        plan,
        before_acquire=lambda interrupts: None,
        warn=lambda text: None,
        clock=desk.time.clock,
    )
    assert runner.run(Patience(wait_seconds=0)).code == 0
    return seen


def test_the_command_starts_with_the_full_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.pool(1)
    request = Request("T", ttl_seconds=TTL)
    assert run_after(desk, 20, request, "true", monkeypatch, forked=[]) == [START + 20 + TTL]
