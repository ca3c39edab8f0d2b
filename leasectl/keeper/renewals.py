"""Renew leases that no living `run` renews."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from leasectl.backends.kinds import kind_of_handle, renew_seconds
from leasectl.keeper.job import FIRST_PAUSE_SECONDS, Key, Retries, key_meant, key_of
from leasectl.keeper.log import Log
from leasectl.leases.renew import note_renewal, renew
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.system.due_times import DueTimes
from leasectl.system.request_threads import Outcome

if TYPE_CHECKING:
    from leasectl.engines.notes import Note

# This share of a ttl, an answer has time to renew the lease in its own write.
_PUT_OFF_SHARE = 1 / 12


class Renewals:
    """Renews three times a ttl at least: on the embedded pool at once, on servers by threads.

    Args:
        service: On the state directory that is kept.
        log: Where events are written.
        noted: Called with a handle and the notes that a renewal has read at its leases.
    """

    def __init__(
        self,
        service: Service,
        log: Log,
        noted: Callable[[Handle, Sequence[Note]], None] = lambda handle, notes: None,
    ) -> None:
        self._noted = noted
        self._service = service
        self._clock = service.clock
        self._log = log
        self._keys: dict[str, Key] = {}  # of those that it renews, by their ids
        self._due: DueTimes[Key] = DueTimes()
        self._renewed_at: dict[Key, float] = {}
        self._retries = Retries(service, log)
        self._threads: RenewalThreads | None = None

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return None if self._threads is None else self._threads.fd

    def see_to(self, handle_id: str, handle: Handle | None) -> None:
        """Renew a handle from now on; None: renew it no more."""
        before = self._keys.pop(handle_id, None)
        key = None if handle is None else key_of(handle)
        if before is not None and before != key:
            self._due.put(before, None)
            self._renewed_at.pop(before, None)
            self._retries.succeeded(before)
        if key is not None and handle is not None:
            renewed_at = self._renewed_at.get(key)
            # When it was last renewed may not be known.
            due = -math.inf if renewed_at is None else renewed_at + renew_seconds(handle)
            retry_at = self._retries.at(key)
            self._keys[handle_id] = key
            self._due.put(key, due if retry_at is None else retry_at)

    def go(self) -> float | None:
        """Renew what is due, or have threads do it.

        Returns:
            When the next renewal is due; None if there is none, or `take_outcomes` will say.
        """
        now = self._clock.elapsed()
        while True:
            key = self._due.next(now)
            if key is None:
                return self._due.first()
            self._due.put(key, now + FIRST_PAUSE_SECONDS)  # in case the rest fails
            handle = self._service.handles.current(*key)
            is_held = handle is not None and handle.state == "held"
            self._due.put(key, self._renew(handle) if handle is not None and is_held else None)

    def _renew(self, handle: Handle) -> float | None:
        if not kind_of_handle(handle).remote:
            now = self._clock.elapsed()
            return self._note(handle, now, lambda: renew(self._service, whole(handle)))
        if self._threads is None:
            self._threads = RenewalThreads(self._service.state, clock=self._clock, puts_off=True)
        self._threads.send(handle)
        return None

    def take_outcomes(self) -> None:
        """Record what came of what threads were asked to do."""
        taken = self._threads.outcomes() if self._threads else []
        for target, _ in taken:
            key = key_meant(target)
            if self._keys.get(target.handle_id) == key:
                # In case the rest fails, for this one or one before it.
                self._due.put(key, self._clock.elapsed() + FIRST_PAUSE_SECONDS)
        for target, outcome in taken:
            handle = self._service.handles.load(target.handle_id)
            if handle is not None and whole(handle) == target:
                record = functools.partial(self._record, handle, outcome)
                due = self._note(handle, outcome.sent_at, record)
                if outcome.value is not None and outcome.value.is_put_off and due is not None:
                    due = min(due, outcome.sent_at + _ttl(handle) * _PUT_OFF_SHARE)
                self._due.put(key_of(handle), due)

    def _record(self, handle: Handle, outcome: Outcome[Any, Renewed]) -> None:
        renewed = outcome.result()
        self._noted(handle, renewed.notes)
        note_renewal(self._service, whole(handle), renewed.names)

    def _note(self, handle: Handle, sent_at: float, renewed: Callable[[], object]) -> float | None:
        key = key_of(handle)
        try:
            renewed()
        except Exception as error:
            if self._service.current(whole(handle)) is None:
                self._log.write(f"{error}")  # lost: there is nothing left to renew
                return None
            return self._retries.failed(key, f"renew {handle.id}", error, _ttl(handle) / 6)
        self._retries.succeeded(key)
        self._renewed_at[key] = sent_at
        return sent_at + renew_seconds(handle)


def _ttl(handle: Handle) -> float:
    assert handle.request.ttl_seconds is not None
    return handle.request.ttl_seconds
