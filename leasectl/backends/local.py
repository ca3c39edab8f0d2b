"""``local:``: the embedded pool."""

from __future__ import annotations

from leasectl.backends.contract import Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.sides import LocalSides
from leasectl.model import Request


def check_url(url: str) -> None:
    """There is one."""


def check_request(request: Request, wait_seconds: float | None) -> None:
    """There is nothing that it can't do."""


def open_backend(url: str, opening: Opening) -> PoolBackend:
    """Open the embedded pool of a state directory."""
    state, lost, clock = opening.state, opening.lost, opening.clock
    engine = LocalEngine(state, lost=lost, clock=clock)
    sides = LocalSides(state, lost=lost, clock=clock, caller=opening.caller)
    return PoolBackend(url, engine, sides, clock=clock)
