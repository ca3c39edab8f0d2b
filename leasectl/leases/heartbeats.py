"""Heartbeats for handles whose leases live on servers."""

from __future__ import annotations

from typing import Callable, NamedTuple

from leasectl.backends.opening import open_renewals
from leasectl.leases.targets import Target, whole
from leasectl.model import Handle
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.request_threads import Errands, Outcome


class _Server(NamedTuple):
    url: str
    settings: str
    ttl_seconds: float


class _Heartbeat(NamedTuple):
    target: Target
    owner: str


class Heartbeats:
    """Sends heartbeats by threads, one for each server and ttl.

    Only the thread that sends may touch the records, so what came of them is for that to record.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._place = state.place()
        self._clock = clock
        self._errands: Errands[_Server, _Heartbeat] = Errands(self._begin, clock=clock)

    @property
    def fd(self) -> int:
        """A descriptor that can be read when there are outcomes."""
        return self._errands.fd

    def send(self, handle: Handle) -> None:
        """Send one for a handle with a ttl, unless one is under way."""
        assert handle.request.ttl_seconds is not None
        where = _Server(handle.backend, handle.settings, handle.request.ttl_seconds)
        self._errands.send(where, _Heartbeat(whole(handle), handle.claims_as))

    def outcomes(self) -> list[tuple[Target, Outcome[_Heartbeat]]]:
        """Take what has come so far; the names are those that are still held."""
        return [(each.job.target, each) for each in self._errands.outcomes()]

    def close(self) -> None:
        self._errands.close()

    def _begin(self, server: _Server) -> Callable[[_Heartbeat], tuple[str, ...]]:
        renew = open_renewals(
            server.url,
            place=self._place,
            settings=server.settings,
            ttl_seconds=server.ttl_seconds,
            clock=self._clock,
        )
        return lambda heartbeat: renew(heartbeat.owner)
