"""Whether there is what was asked for, where Boskos doesn't say it in words that are known."""

from __future__ import annotations

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.answers import metric, verdict
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
        BackendUnreachable: It can't be told now.
    """
    call = requests.metric(connection.address, request.type)
    answer = yield from connection.asking(call, seconds=_SECONDS)
    metric(connection.url, request.type, answer)
    if request.name is not None:
        call = requests.update(connection.address, request.name, owner)
        answer = yield from connection.asking(call, seconds=_SECONDS)
        if verdict(connection.url, answer) == "gone":
            raise NotFound(f'no resource "{printable(request.name)}" at {connection.url}')
