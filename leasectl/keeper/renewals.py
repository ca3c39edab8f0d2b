"""Renewing leases with a ttl for handles that have no living `run` of their own."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Callable

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.keeper.log import Log
from leasectl.keeper.retries import Key, Retries, key_of
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.state.handles import renews_itself
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead
from leasectl.system.request_threads import Outcome

if TYPE_CHECKING:
    from leasectl.engines.notes import Note


class Renewals:
    """Renews three times a ttl: on the embedded pool at once, on servers by threads.

    Args:
        service: On the state directory that is kept.
        clock: Where times come from.
        log: Where events are written.
        noted: Told what is noted at what a handle holds on a server.
    """

    def __init__(
        self,
        service: Service,
        *,
        clock: Clock,
        log: Log,
        noted: Callable[[Handle, Sequence[Note]], None] = lambda handle, notes: None,
    ) -> None:
        self._noted = noted
        self._service = service
        self._clock = clock
        self._log = log
        self._renewed_at: dict[Key, float] = {}
        self._retries = Retries(clock=clock, log=log)
        self._threads: RenewalThreads | None = None

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return None if self._threads is None else self._threads.fd

    def renew(self, handle: Handle) -> float | None:
        """Renew a handle if that is due, or have a thread do it.

        Returns:
            When the next renewal is due; None if `take_outcomes` will say.
        """
        key = key_of(handle)
        now = self._clock.elapsed()
        due = self._retries.at(key)
        if due is None:
            due = self._renewed_at.get(key, 0.0) + _ttl(handle) / 3
        if now < due:
            return due
        if not kind_of_handle(handle).remote:
            return self._note(handle, now, lambda: renew(self._service, whole(handle)))
        if self._threads is None:
            self._threads = RenewalThreads(self._service.state, clock=self._clock)
        self._threads.send(handle)
        return None

    def take_outcomes(self) -> None:
        """Record what came of what threads were asked to do."""
        for target, outcome in self._threads.outcomes() if self._threads else ():
            handle = self._service.handles.load(target.handle_id)
            if handle is not None and whole(handle) == target:
                record = functools.partial(self._record, handle, outcome)
                self._note(handle, outcome.sent_at, record)

    def keep_only(self, known: Collection[Key]) -> None:
        """Forget what isn't there any more."""
        self._retries.keep_only(known)
        for key in [key for key in self._renewed_at if key not in known]:
            del self._renewed_at[key]

    def _record(self, handle: Handle, outcome: Outcome[Any, Renewed]) -> None:
        renewed = outcome.result()
        self._noted(handle, renewed.notes)
        note_renewal(self._service, whole(handle), renewed.names)

    def _note(self, handle: Handle, sent_at: float, renewed: Callable[[], object]) -> float | None:
        key = key_of(handle)
        try:
            renewed()
        except LeaseError as error:
            if handle.id not in {each.id for each in self._service.handles.watched()}:
                self._log.write(f"{error}")  # lost: there is nothing left to renew
                return None
            text = f"can't renew {handle.id}: {error}"
            return self._retries.failed(key, text, longest_seconds=_ttl(handle) / 6)
        self._retries.succeeded(key)
        self._renewed_at[key] = sent_at
        return sent_at + _ttl(handle) / 3


def keeper_renews(handle: Handle) -> bool:
    """Tell whether a handle's ttl is the keeper's business: nobody else is there to renew."""
    if not renews_itself(handle) or handle.state != "held":
        return False
    return handle.runner is None or is_dead(handle.runner)


def _ttl(handle: Handle) -> float:
    assert handle.request.ttl_seconds is not None
    return handle.request.ttl_seconds
