"""The lease proxy as a backend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.kinds import (
    Backend,
    check_port,
    has_pools,
    is_asked_by_holder,
    lacking,
    no_backend,
    prefixes,
)
from leasectl.backends.proxy.acquisition import Acquisition
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.releases import Releases
from leasectl.backends.proxy.status import ask_status
from leasectl.errors import InvalidRequest, NotSupported

if TYPE_CHECKING:
    from leasectl.backends.contract import Patience, RemoteJournal
    from leasectl.backends.kinds import Context
    from leasectl.model import Claimant, ReleasedBy, Request
    from leasectl.state.directory import State

_URL = re.compile(
    r"https?://(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[A-Za-z0-9._~/-]*)?",
    re.ASCII,
)


class ProxyBackend(Backend):
    """Leases from a lease proxy."""

    title = "a lease proxy"
    pools_are = "is a lease proxy, whose server manages its pools (show them with: leasectl status)"
    prefix = "http://"
    choice = help = "the http:// address of a lease proxy"
    releases_by_name = True
    outlives_steps = True

    def __init__(self, context: Context, state: State) -> None:
        super().__init__(context, state)
        self._clock = context.clock
        self._connection = Connection(context.url, context.settings, clock=context.clock)
        self._releases = Releases(context, self._connection)

    @classmethod
    def check_url(cls, url: str) -> None:
        if "@" in url:
            raise InvalidRequest(  # without the address, which may hold a password
                "a lease proxy's address can't hold a user; if it needs a token, name a "
                "file with the token in LEASECTL_TOKEN_FILE"
            )
        found = _URL.fullmatch(url)
        if found is None:
            raise no_backend(url)
        check_port(url, found["port"], like="http://HOST:PORT")

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        """Refuse options that the protocol has no words for."""
        for option, given, able in (
            ("--name", request.name is not None, is_asked_by_holder),
            ("--where", bool(request.where), has_pools),
            ("--priority", request.priority != 0, has_pools),
            ("--ttl", request.ttl_seconds is not None, has_pools),
            ("-w 0", wait_seconds == 0, is_asked_by_holder),
        ):
            if given:
                raise lacking(f"{option} is not supported by the lease proxy", has=able)

    @classmethod
    def status(cls, context: Context, pool_type: str | None) -> object:
        return ask_status(context.url, context.settings, pool_type=pool_type, clock=context.clock)

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        raise NotSupported(
            f"the lease proxy {self.url} renews leases itself until its job ends; "
            f"only leases of {prefixes('and', has=is_asked_by_holder)} are renewed by their holder"
        )

    def close(self) -> None:
        self._connection.close()

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        self.check_request(claimant.request, patience.wait_seconds)
        journal.enqueuing()
        acquisition = Acquisition(
            self.url,
            self._connection,
            self._releases,
            request=claimant.request,
            journal=journal,
            patience=patience,
            clock=self._clock,
        )
        journal.granted(acquisition.take())

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterator[str]:
        """Implements `Releases.release`."""
        return self._releases.release(claim_key, names)
