"""Open the backend."""

from __future__ import annotations

import re

from leasectl.backends.contract import Backend, Opening
from leasectl.backends.kinds import check_port, no_backend
from leasectl.backends.proxy import backend
from leasectl.backends.proxy.connection import Connection
from leasectl.errors import InvalidRequest
from leasectl.http.settings import parse_settings
from leasectl.model import Request

_URL = re.compile(
    r"https?://(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[A-Za-z0-9._~/-]*)?",
    re.ASCII,
)


def check_url(url: str) -> None:
    """Raise InvalidRequest unless it is an address that can be asked."""
    if "@" in url:
        raise InvalidRequest(  # without the address, which may hold a password
            "a lease proxy's address can't hold a user; if it needs a token, name a "
            "file with the token in LEASECTL_TOKEN_FILE"
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise no_backend(url)
    check_port(url, found["port"], like="http://HOST:PORT")


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Implements `limits.check_request`."""
    backend.check_request(request, wait_seconds)


def open_backend(url: str, opening: Opening) -> Backend:
    """Open a lease proxy; nothing is asked of it yet."""
    # Here, because they take long to load.
    from leasectl.backends.proxy.backend import ProxyBackend
    from leasectl.backends.without_pools import own_events

    connection = Connection(url, parse_settings(opening.settings), clock=opening.clock)
    return ProxyBackend(
        url,
        connection,
        release_seconds=opening.release_seconds,
        warn=opening.warn,
        clock=opening.clock,
        events=lambda: own_events(opening.state, url),
    )
