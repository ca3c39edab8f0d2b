"""Handle refused credentials, and explain them.

A server that begins to run answers before it knows anybody's rights, and nobody's tokens: a 403 or
a 401 counts only from one that says that it is ready.
"""

from __future__ import annotations

from typing import Union

from leasectl.engines.kubernetes.api.access import Access, Login
from leasectl.engines.kubernetes.api.refusals import NotAuthenticated, NotPermitted
from leasectl.errors import AccessRefused, CorruptState, InvalidRequest, NotAllowed
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from leasectl.http.no_answer import OTHER_TIME, NoAnswer

_READY = "/readyz"

# Why we aren't let in.
Refusal = Union[NotAuthenticated, NotPermitted, NoAnswer]


def addressed(access: Access, call: Call) -> Call:
    """A request whose URL begins at the path, as it is sent to a server."""
    return call._replace(
        url=access.server + call.url,
        headers={**call.headers, **access.headers},
        more_headers=access.more_headers,
        server_name=access.server_name,
    )


def current_access(login: Login, seconds: float) -> Access:
    """As `Login.current`, with errors that say nothing of what is under way: it isn't asked.

    Raises:
        AccessRefused: There is none.
    """
    try:
        return login.current(seconds)
    except (CorruptState, InvalidRequest, NotAllowed) as reason:
        raise AccessRefused(reason) from reason


def renewed_access(login: Login, refused: Access, seconds: float) -> Access | None:
    """Implements `Login.renewed`; otherwise as `current_access`."""
    try:
        return login.renewed(refused, seconds)
    except (CorruptState, InvalidRequest, NotAllowed) as reason:
        raise AccessRefused(reason) from reason


def not_let_in(access: Access, refusal: Refusal) -> AccessRefused:
    """The error for a 401 or 403 that stays, or a connection that one of both sides doesn't want.

    In a 401, expired, damaged and foreign look the same.
    """
    if isinstance(refusal, NotPermitted):
        return AccessRefused(NotAllowed(f"{access.server}: {refusal}"))
    if isinstance(refusal, NotAuthenticated):
        return AccessRefused(
            NotAllowed(
                f"{access.server} doesn't know who we are (401: {refusal}): {access.who} has "
                "expired, is damaged, or is of another cluster; get a new one, or name another "
                "kubeconfig in LEASECTL_KUBECONFIG"
            )
        )
    advice = {
        "certificate": f"the certificate-authority in {access.found} has to be its CA",
        "name": f"tls-server-name in {access.found} can say which name it has",
        "time": OTHER_TIME,
        "ours": f"{access.who} has to be one that it knows",
        None: "",
    }[refusal.distrust]
    return AccessRefused(NotAllowed(f"{access.server}: {refusal}; {advice}"))


def is_ready(access: Access, client: Client, seconds: float, *, as_nobody: bool) -> bool:
    """Ask a server whether it is ready; where we may not ask that, it never says so.

    Args:
        access: To it.
        client: That leads there.
        seconds: How long it may take.
        as_nobody: Without what it didn't know us by.
    """
    call = Call(_READY, method="GET")
    shown = access._replace(headers={}, more_headers=()) if as_nobody else access
    try:
        return client.ask(addressed(shown, call), seconds=seconds).status == 200
    except NoAnswer:
        return False
