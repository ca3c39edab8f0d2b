"""Counts of a type, and whether it exists."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.connection import (
    BoskosConnection,
    Metric,
    check_is_boskos,
    metric,
    verdict,
)
from leasectl.backends.boskos.requests import parse_boskos_url
from leasectl.backends.one_by_one import Steps
from leasectl.backends.servers import TypeCounts
from leasectl.errors import NotFound
from leasectl.http.settings import Settings
from leasectl.model import Request
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, sleep_through
from leasectl.text.wording import printable

_MISSING_SECONDS = 5.0


def check_there_is(connection: BoskosConnection, request: Request, owner: str) -> Steps[None]:
    """Look whether there is any resource of a type, and that very one if one is named.

    An update by who isn't its owner changes nothing, and is answered otherwise for what there is.

    Raises:
        NotFound: There is none.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    yield from metric_of(connection, request.type, seconds=_MISSING_SECONDS)
    if request.name is not None:
        call = requests.update(connection.address, request.name, owner)
        answer = yield from connection.asking(call, seconds=_MISSING_SECONDS)
        if verdict(connection.url, answer) == "gone":
            raise NotFound(f'no resource "{printable(request.name)}" at {connection.url}')


def metric_of(connection: BoskosConnection, pool_type: str, *, seconds: float) -> Steps[Metric]:
    """Ask what there is of a type.

    Args:
        connection: To Boskos.
        pool_type: The type.
        seconds: How long each request may take.

    Raises:
        NotFound: The type doesn't exist.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    call = requests.metric(connection.address, pool_type)
    answer = yield from connection.asking(call, seconds=seconds)
    if answer.status == 404:  # which whatever else is at a wrong address says, too
        call = requests.sign_of_life(connection.address)
        check_is_boskos(connection.url, (yield from connection.asking(call, seconds=seconds)))
    return metric(connection.url, pool_type, answer)


_SECONDS = 10.0


def ask_counts(
    url: str,
    settings: Settings,
    pool_type: str,
    *,
    interrupts: Sequence[Interrupt],
    clock: Clock,
) -> TypeCounts:
    """Implements `CountServer`."""
    connection = BoskosConnection(parse_boskos_url(url), settings, clock=clock)
    steps = metric_of(connection, pool_type, seconds=_SECONDS)
    told = sleep_through(steps, interrupts=interrupts, now=clock.elapsed)
    return TypeCounts(pool_type, told.states, told.owners, connection.address.free)
