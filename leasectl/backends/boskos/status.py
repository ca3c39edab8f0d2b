"""What Boskos tells of a type: how many are in which state, and how many each owner has."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.address import parse_boskos_url
from leasectl.backends.boskos.answers import metric
from leasectl.backends.boskos.connection import BoskosConnection
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
    address = connection.address
    asking = connection.asking(requests.metric(address, pool_type), seconds=_SECONDS)
    answer = sleep_through(asking, interrupts=interrupts, now=clock.elapsed)
    told = metric(connection.url, pool_type, answer)
    return TypeCounts(pool_type, told.states, told.owners, address.free)
