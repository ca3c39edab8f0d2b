"""Whether there is what was asked for, where Boskos doesn't say it in words that are known."""

from __future__ import annotations

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.answers import Metric, check_is_boskos, metric, verdict
from leasectl.backends.boskos.connection import BoskosConnection
from leasectl.backends.one_by_one import Steps
from leasectl.errors import NotFound
from leasectl.model import Request
from leasectl.text.printable import printable

_SECONDS = 5.0


def check_there_is(connection: BoskosConnection, request: Request, owner: str) -> Steps[None]:
    """Look whether there is any resource of a type, and that very one if one is named.

    An update by who isn't its owner changes nothing, and is answered otherwise for what there is.

    Raises:
        NotFound: There is none.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    yield from metric_of(connection, request.type, seconds=_SECONDS)
    if request.name is not None:
        call = requests.update(connection.address, request.name, owner)
        answer = yield from connection.asking(call, seconds=_SECONDS)
        if verdict(connection.url, answer) == "gone":
            raise NotFound(f'no resource "{printable(request.name)}" at {connection.url}')


def metric_of(connection: BoskosConnection, pool_type: str, *, seconds: float) -> Steps[Metric]:
    """Ask what there is of a type.

    Args:
        connection: To Boskos.
        pool_type: The type.
        seconds: How long each request may take.

    Raises:
        NotFound: There is no such type.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    call = requests.metric(connection.address, pool_type)
    answer = yield from connection.asking(call, seconds=seconds)
    if answer.status == 404:  # which whatever else is at a wrong address says, too
        call = requests.sign_of_life(connection.address)
        check_is_boskos(connection.url, (yield from connection.asking(call, seconds=seconds)))
    return metric(connection.url, pool_type, answer)
