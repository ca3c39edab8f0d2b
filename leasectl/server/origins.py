"""Refuse requests that a web page of another site may have made.

A browser sends what any page tells it to, with the rights of the machine that it runs on. Two
headers tell such a request from that of a script, and no page can forge them:

- A page of another site that changes something: `Sec-Fetch-Site`, or, from browsers and over plain
  HTTP where that isn't sent, an `Origin` other than the `Host`. Scripts send neither.
- A page whose own host name was made to mean this machine (DNS rebinding): `Host` is that name.
  Only names that can't be registered by others are answered over loopback. With a token there is
  nothing to be had that way, and a reverse proxy may pass on the name by which it is reached.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from leasectl.server.responses import refusal
from leasectl.text.wording import printable

_READING = ("GET", "HEAD", "OPTIONS")
# Nobody can register a name under these.
_LOCAL_SUFFIXES = (".localhost", ".internal")


class OriginCheck:
    """An ASGI application that passes on what no other site's page can have sent.

    Args:
        app: What answers the rest.
        own_names: Host names of this server, beside addresses and names without a dot; None: any.
    """

    def __init__(self, app: ASGIApp, own_names: tuple[str, ...] | None) -> None:
        self._app = app
        self._own_names = own_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        why_not = self._why_not(request)
        if why_not is None:
            await self._app(scope, receive, send)
        else:
            await refusal(403, why_not)(scope, receive, send)

    def _why_not(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if self._own_names is not None and _is_over_loopback(request.scope):
            name = _host_name(host)
            if not (name.lower() in self._own_names or _is_local(name)):
                return (
                    f"unknown host {printable(name, longest=200)}; use the server's address, "
                    "or start the server with --token-file"
                )
        if request.method not in _READING and _is_from_another_site(request, host):
            return "requests from another site's page are refused"
        return None


def _is_from_another_site(request: Request, host: str) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("origin")
    if origin is None:
        return False
    scheme, _, authority = origin.partition("://")
    return scheme not in ("http", "https") or authority.lower() != host.lower()


def _is_over_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    return server is not None and is_loopback(server[0])


def is_loopback(address: str) -> bool:
    """Tell whether an IP address is of this machine alone."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_local(name: str) -> bool:
    """Tell whether a host name can't be one that a stranger has registered."""
    if "." not in name and ":" not in name:
        return True  # of this network, or missing as in HTTP/1.0
    if name.lower().endswith(_LOCAL_SUFFIXES):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
