"""Which server, and as whom; and whether it lets us in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Union

from leasectl.engines.kubernetes.api.refusals import NotAuthenticated, NotPermitted
from leasectl.errors import AccessRefused, CorruptState, InvalidRequest, NotAllowed
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

    def takes(self, other: Access) -> bool:
        """Whether a client of another one leads to the same server in the same way."""
        return (self.server, self.proxy_url) == (other.server, other.proxy_url) and (
            self.trust is other.trust
        )


class Login(Protocol):
    """Where the access comes from. Threads may share one."""

    def current(self, seconds: float) -> Access:
        """What is valid as far as is known here: files are read again when they have changed.

        Args:
            seconds: How long it may take, where a program has to be asked.

        Raises:
            LeaseError: There is none.
        """
        ...

    def renewed(self, refused: Access, seconds: float) -> Access | None:
        """Another instead of one that the server doesn't take; None where there is only that.

        Raises:
            LeaseError: As `current`.
        """
        ...


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
                f"{access.server} rejects the credentials (401: {refusal}): {access.who} has "
                "expired, is damaged or belongs to another cluster; get a new one, or name another "
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
