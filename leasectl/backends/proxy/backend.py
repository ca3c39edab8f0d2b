"""The lease proxy as a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.contract import Patience, RemoteJournal, Turn
from leasectl.backends.kinds import pool_prefixes, renewed_prefixes
from leasectl.backends.proxy.acquisition import Acquisition
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.releases import Releases
from leasectl.backends.without_pools import WithoutPools
from leasectl.errors import NotSupported
from leasectl.model import Claimant, ReleasedBy, Request
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Refuse what the protocol has no words for.

    Args:
        request: What is wanted.
        wait_seconds: For how long it may wait; None for no limit.

    Raises:
        NotSupported: It has none.
    """
    for option, given, able in (
        ("--name", request.name is not None, renewed_prefixes),
        ("--where", bool(request.where), pool_prefixes),
        ("--priority", request.priority != 0, pool_prefixes),
        ("--ttl", request.ttl_seconds is not None, pool_prefixes),
        ("-w 0", wait_seconds == 0, renewed_prefixes),
    ):
        if given:
            raise NotSupported(
                f"{option} is not supported by the lease proxy; {able('and')} can do it"
            )


class ProxyBackend(WithoutPools):
    """Leases from a lease proxy.

    Args:
        url: ``http://`` or ``https://`` address of the proxy.
        connection: How to talk to it.
        release_seconds: How long a release may take in all; None for the usual time.
        warn: As `Releases` has it.
        clock: Where times come from.
        events: Opens the record of what happened to this directory's handles there.
    """

    def __init__(
        self,
        url: str,
        connection: Connection,
        *,
        release_seconds: float | None,
        warn: Callable[[str], None],
        clock: Clock,
        events: Callable[[], EventLog],
    ) -> None:
        super().__init__(url, events)
        self._connection = connection
        self._releases = Releases(url, connection, seconds=release_seconds, warn=warn, clock=clock)
        self._clock = clock

    def turn(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> Turn:
        raise NotSupported(
            f"leasectl serve can't serve leases of another lease proxy, {self.url}; "
            f"{pool_prefixes('and')} can be served"
        )

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        raise NotSupported(
            f"the lease proxy {self.url} renews leases itself until its job ends; "
            f"only leases of {renewed_prefixes('and')} are renewed by their holder"
        )

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        check_request(claimant.request, patience.wait_seconds)
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
