"""What one request needs: server, TLS and headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from leasectl.http.exchange import Client
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
