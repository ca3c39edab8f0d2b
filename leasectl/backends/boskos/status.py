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

_SECONDS = 10.0


def ask_counts(
    url: str, settings: Settings, pool_types: Sequence[str], *, clock: Clock
) -> tuple[TypeCounts, ...]:
    """As `CountServer` has it."""
    connection = BoskosConnection(parse_boskos_url(url), settings, clock=clock)
    address = connection.address
    found = []
    for each in pool_types:
        answer = connection.ask(requests.metric(address, each), seconds=_SECONDS)
        told = metric(connection.url, answer)
        found.append(TypeCounts(each, told.states, told.owners, address.free))
    return tuple(found)
