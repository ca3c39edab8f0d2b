"""``local:``: the embedded pool of this machine, in the database of the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasectl.backends.contract import Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.engine import LocalEngine
from leasectl.model import Request

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.pool_admin import PoolAdmin


def check_url(url: str) -> None:
    """There is one."""


def check_request(request: Request, wait_seconds: float | None) -> None:
    """There is nothing that it can't do."""


def open_backend(url: str, opening: Opening) -> PoolBackend:
    """Open the embedded pool of a state directory."""
    state, lost, clock = opening.state, opening.lost, opening.clock
    engine = LocalEngine(state, lost=lost, clock=clock)

    def pools() -> PoolAdmin:
        from leasectl.engines.local.pools import LocalPools

        return LocalPools(state, lost=lost, clock=clock, caller=opening.caller)

    def events() -> EventLog:
        from leasectl.state.event_log import StateEventLog

        return StateEventLog(state)

    return PoolBackend(url, engine, pools, events=events, clock=clock)
