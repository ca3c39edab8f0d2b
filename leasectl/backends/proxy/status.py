"""Pools behind a `leasectl serve`.

``GET /leasectl/v1/status``, for one pool with ``?type=T``, is answered with what ``status --json``
shows. ci-operator's proxy knows no such path.
"""

from __future__ import annotations

import contextlib
from typing import Any

from leasectl.backends.kinds import no_pools
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.unanswered import Refused, words_of
from leasectl.errors import LeaseError, NotFound
from leasectl.http.messages import Answer, encode_query
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from leasectl.text.properties import MALFORMED, read_json
from leasectl.text.wording import printable

STATUS = "/leasectl/v1/status"
# The member of an answer of 404 that says which type there isn't.
ERROR = "error"
# Some 50,000 resources. The server answers with less, so that who asks for too much is told so.
LONGEST_STATUS_BYTES = 32 << 20
_SECONDS = 10.0
_SOON_SECONDS = 2.0


def ask_status(url: str, settings: Settings, *, pool_type: str | None, clock: Clock) -> object:
    """Ask for pools as they are.

    Args:
        url: Of the server.
        settings: How to talk to it.
        pool_type: The one to tell of; None for all.
        clock: Where times come from.

    Returns:
        What `leasectl.pools.overview_json` reads.

    Raises:
        NotFound: It has no such type.
        NotSupported: It tells nothing of pools.
        BackendUnreachable: No answer, or none to us.
    """
    connection = Connection(url, settings, clock=clock, longest_bytes=LONGEST_STATUS_BYTES)
    query = "" if pool_type is None else f"?{encode_query({'type': pool_type})}"
    return status_in(url, connection.look(STATUS + query, seconds=_SECONDS))


def capacity_of(url: str, connection: Connection, pool_type: str) -> int | None:
    """How many resources a pool has; None where that can't be told, or not soon."""
    path = f"{STATUS}?{encode_query({'type': pool_type})}"
    with contextlib.suppress(LeaseError, *MALFORMED):
        told: Any = status_in(url, connection.look(path, seconds=_SOON_SECONDS))
        (pool,) = told["pools"]
        # What another server only counts may grow.
        return None if "states" in pool else int(pool["capacity"])
    return None


def status_in(url: str, answer: Answer) -> object:
    """What an answer says of pools; errors as `ask_status` has them."""
    if answer.status == 200:
        decoded = _decoded(answer)
        if decoded is None:
            raise Refused(f"unexpected answer from {url} (no pools); is it really a lease proxy?")
        return decoded
    if answer.status == 404:
        decoded = _decoded(answer)
        if isinstance(decoded, dict) and isinstance(decoded.get(ERROR), str):
            raise NotFound(printable(decoded[ERROR], longest=1000))
    if answer.status in (404, 405):
        raise no_pools(url)
    raise Refused(words_of(url, answer))


def _decoded(answer: Answer) -> object:
    try:
        return read_json(answer.text)
    except (ValueError, RecursionError):
        return None
