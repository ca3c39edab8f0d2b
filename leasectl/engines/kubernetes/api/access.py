"""Which server, and as whom; and whether it lets us in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Union

from leasectl.engines.kubernetes.api.refusals import NotAuthenticated, NotPermitted
from leasectl.errors import AccessRefused, NotAllowed
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from leasectl.http.no_answer import OTHER_TIME, NoAnswer
from leasectl.http.tls import Trust
from leasectl.system.clock import Clock

# At each address that a name has, and again for TLS, where a stopped server hangs.
CONNECT_SECONDS = 3.0
# A list of many thousands of objects comes in pages; one object has 1.5 MiB at most.
LONGEST_ANSWER_BYTES = 64 << 20


class Access(NamedTuple):
    """The way to a cluster, and what to show there. Compared by what it is.

    Args:
        server: The address of its API, without a "/" at the end.
        found: Where that was found, for messages: ``context "ci" in /path``.
        who: What we show there, for messages: ``the token in /path``; no secret.
        headers: To be sent with each request.
        more_headers: The same, for those that come more than once.
        trust: For TLS; None without.
        server_name: Whose certificate it has to be, where not the address's own host.
        proxy_url: The HTTP proxy on the way; None for none.
    """

    server: str
    found: str
    who: str
    headers: Mapping[str, str] = {}
    more_headers: Sequence[tuple[str, str]] = ()
    trust: Trust | None = None
    server_name: str | None = None
    proxy_url: str | None = None

    @property
    def proxy(self) -> str:
        """The proxy, for messages: without a user and password that its URL may hold."""
        scheme, _, rest = (self.proxy_url or "").partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def new_client(self) -> Client:
        """A client whose connections lead there."""
        return Client(
            clock=Clock(),  # a server takes its time by this machine's, whatever ours is
            trust=self.trust,
            proxy_url=self.proxy_url,
            connect_seconds=CONNECT_SECONDS,
            longest_bytes=LONGEST_ANSWER_BYTES,
        )

    @property
    def route(self) -> object:
        """What is equal for two accesses whose requests may share a client."""
        return self.server, self.proxy_url, self.trust


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


def not_let_in(access: Access, refusal: Refusal) -> AccessRefused:
    """The error for a 401 or 403 that stays, or a connection that one of both sides doesn't want.

    In a 401, expired, damaged and foreign look the same.
    """
    if isinstance(refusal, NotPermitted):
        return AccessRefused(NotAllowed(f"{access.server}: {refusal}"))
    if isinstance(refusal, NotAuthenticated):
        return AccessRefused(
            NotAllowed(
                f"{access.server} rejects the credentials (401: {refusal}): {access.who} has "
                "expired, is damaged or belongs to another cluster; get a new one, or name another "
                "kubeconfig in LEASECTL_KUBECONFIG"
            )
        )
    advice = {
        "certificate": f"certificate-authority in {access.found} must be the CA of the server",
        "name": f"set tls-server-name in {access.found} to a name in its certificate",
        "time": OTHER_TIME,
        "ours": f"the server doesn't accept {access.who}",
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
