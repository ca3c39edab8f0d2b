"""Renew leases on servers, in threads.

No command and no keeper may wait for a renewal: a server that hangs must delay only its own leases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import Context, claim_key_of, kind_of
from leasectl.backends.servers import ClosingRenewals, Renew, RenewalTerms
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
    """The result of a renewal.

    Args:
        names: The names that are still held.
        notes: The notes at the claims.
        is_put_off: Some lease is renewed later, with the answer to a note or by another renewal.
    """

    names: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    is_put_off: bool = False


class RenewalThreads:
    """Sends renewals by threads, one for each server and ttl.

    Only the main thread may touch the records, so the caller records the outcomes.

    Args:
        state: The opened state directory.
        clock: Where times come from.
        puts_off: The caller soon repeats a renewal that says it was put off.
    """

    def __init__(self, state: State, *, clock: Clock, puts_off: bool = False) -> None:
        self._state_id = state.state_id()
        self._clock = clock
        self._puts_off = puts_off
        self._opened: list[Renew] = []  # by their threads
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
        """Send a renewal for a handle with a ttl, unless one is under way."""
        self._threads.send(
            _server_of(handle), _Renewal(whole(handle), claim_key_of(handle), handle.names)
        )

    def outcomes(self) -> list[tuple[ReleaseTarget, Outcome[_Renewal, Renewed]]]:
        """Take the outcomes that have come so far."""
        return [(each.job.target, each) for each in self._threads.outcomes()]

    def close(self) -> None:
        self._threads.close()
        for each in self._opened:
            if isinstance(each, ClosingRenewals):
                each.close()

    def _begin(self, server: _Server) -> Callable[[_Renewal], Renewed]:
        noted: list[Note] = []
        put_off: list[bool] = []
        context = Context(server.url, parse_settings(server.settings), clock=self._clock)
        terms = RenewalTerms(
            self._state_id,
            server.ttl_seconds,
            noted.extend,
            (lambda: put_off.append(True)) if self._puts_off else None,
        )
        renew = kind_of(server.url).open_renewals(context, terms)
        self._opened.append(renew)

        def renew_and_note(renewal: _Renewal) -> Renewed:
            noted.clear()
            put_off.clear()
            names = renew(renewal.claim_key, renewal.names)
            return Renewed(names, tuple(noted), bool(put_off))

        return renew_and_note


def _server_of(handle: Handle) -> _Server:
    assert handle.request.ttl_seconds is not None
    return _Server(handle.backend, handle.settings, handle.request.ttl_seconds)
