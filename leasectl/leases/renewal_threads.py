"""Renew leases on servers, in threads.

A server that hangs holds up nobody but itself, and no command and no keeper may wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.contract import Context
from leasectl.backends.kinds import claim_key_of, kind_of
from leasectl.http.settings import parse_settings
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.request_threads import Outcome, RequestThreads

if TYPE_CHECKING:
    from leasectl.engines.notes import Note


class _Server(NamedTuple):
    url: str
    settings: str
    ttl_seconds: float


class _Renewal(NamedTuple):
    target: ReleaseTarget
    claim_key: str
    names: tuple[str, ...]


class Renewed(NamedTuple):
    """What a renewal has found.

    Args:
        names: What is still held.
        notes: What is noted at the claims.
        is_put_off: Some is renewed with the answer to a note, or by another renewal soon.
    """

    names: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    is_put_off: bool = False


class RenewalThreads:
    """Sends renewals by threads, one for each server and ttl.

    Only the thread that sends may touch the records, so what came of them is for that to record.

    Args:
        state: The opened state directory.
        clock: Where times come from.
        puts_off: Whoever sends renewals repeats one soon that says so.
    """

    def __init__(self, state: State, *, clock: Clock, puts_off: bool = False) -> None:
        self._state_id = state.state_id()
        self._clock = clock
        self._puts_off = puts_off
        self._threads: RequestThreads[_Server, _Renewal, Renewed] = RequestThreads(
            self._begin, clock=clock
        )

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first."""
        return self._threads.fd

    def open(self, handle: Handle) -> None:
        """Start the thread that renews a handle with a ttl.

        Raises:
            LeaseError: No thread or no descriptor is left.
        """
        self._threads.open(_server_of(handle))

    def send(self, handle: Handle) -> None:
        """Send one for a handle with a ttl, unless one is under way."""
        self._threads.send(
            _server_of(handle), _Renewal(whole(handle), claim_key_of(handle), handle.names)
        )

    def outcomes(self) -> list[tuple[ReleaseTarget, Outcome[_Renewal, Renewed]]]:
        """Take what has come so far."""
        return [(each.job.target, each) for each in self._threads.outcomes()]

    def close(self) -> None:
        self._threads.close()

    def _begin(self, server: _Server) -> Callable[[_Renewal], Renewed]:
        noted: list[Note] = []
        put_off: list[bool] = []
        context = Context(server.url, parse_settings(server.settings), clock=self._clock)
        renew = kind_of(server.url).open_renewals(
            context,
            state_id=self._state_id,
            ttl_seconds=server.ttl_seconds,
            noted=noted.extend,
            put_off=(lambda: put_off.append(True)) if self._puts_off else None,
        )

        def renew_and_note(renewal: _Renewal) -> Renewed:
            noted.clear()
            put_off.clear()
            names = renew(renewal.claim_key, renewal.names)
            return Renewed(names, tuple(noted), bool(put_off))

        return renew_and_note


def _server_of(handle: Handle) -> _Server:
    assert handle.request.ttl_seconds is not None
    return _Server(handle.backend, handle.settings, handle.request.ttl_seconds)
