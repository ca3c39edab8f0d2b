"""What Boskos tells of a type: how many are in which state, and how many each owner has."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.boskos.address import parse_boskos_url
from leasectl.backends.boskos.connection import BoskosConnection
from leasectl.backends.boskos.missing import metric_of
from leasectl.backends.servers import TypeCounts
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, sleep_through

_SECONDS = 10.0


def ask_counts(
    url: str,
    settings: Settings,
    pool_type: str,
    *,
    interrupts: Sequence[Interrupt],
    clock: Clock,
) -> TypeCounts:
    """As `CountServer` has it."""
    connection = BoskosConnection(parse_boskos_url(url), settings, clock=clock)
    steps = metric_of(connection, pool_type, seconds=_SECONDS)
    told = sleep_through(steps, interrupts=interrupts, now=clock.elapsed)
    return TypeCounts(pool_type, told.states, told.owners, connection.address.free)
