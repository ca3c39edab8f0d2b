"""Boskos as a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from leasectl.backends.boskos.acquisition import BoskosAcquisition
from leasectl.backends.boskos.connection import BoskosConnection
from leasectl.backends.boskos.holding import Holding, LostNote, look
from leasectl.backends.boskos.requests import check_request, type_of
from leasectl.backends.contract import Patience, RemoteJournal, Turn
from leasectl.backends.kinds import only_ttl
from leasectl.backends.release_tries import ReleaseTries
from leasectl.backends.without_pools import WithoutPools
from leasectl.model import Claimant, ReleasedBy
from leasectl.system.clock import Clock
from leasectl.system.poll import sleep_through

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog

_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 5.0


class BoskosBackend(WithoutPools):
    """Leases from Boskos. A claim key is what it calls an owner.

    Args:
        url: Its address.
        connection: How to talk to it.
        release_seconds: How long a release may take in all; None for the usual time.
        warn: Called with a line for people, about what turned out not to be leased any more.
        clock: Where times come from.
        events: Opens the record of what happened to this directory's handles there.
    """

    def __init__(
        self,
        url: str,
        connection: BoskosConnection,
        *,
        release_seconds: float | None,
        warn: Callable[[str], None],
        clock: Clock,
        events: Callable[[], EventLog],
    ) -> None:
        super().__init__(url, events)
        self._connection = connection
        self._holding = Holding(connection, clock=clock)
        self._tries = ReleaseTries(connection.url, seconds=release_seconds, warn=warn, clock=clock)
        self._warn = warn
        self._clock = clock

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        steps = self.turn(claimant, journal, patience)
        sleep_through(steps, interrupts=patience.interrupts, now=self._clock.elapsed)

    def turn(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> Turn:
        check_request(claimant.request)
        journal.enqueuing()
        acquisition = BoskosAcquisition(
            self._connection,
            self._give_back,
            claimant=claimant,
            journal=journal,
            patience=patience,
            clock=self._clock,
        )
        journal.granted((yield from acquisition.take()))

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterator[str]:
        """Implements `Backend.release`; other grants of the key are only reported."""
        if not names:
            self._tell_of_more(claim_key)
        return self._tries.give_all_back(names, lambda name: self._holding.sender(claim_key, name))

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        address = self._connection.address
        if ttl_seconds is not None and ttl_seconds not in (
            address.reaper_seconds,
            address.ttl_seconds,
        ):
            raise only_ttl(self.url, address.reaper_seconds)
        until = self._clock.elapsed() + _RENEW_SECONDS
        return self._tries.until_it_works(
            lambda: self._holding.renew(
                claim_key, names, seconds=max(0.0, until - self._clock.elapsed())
            ),
            until,
        )

    def _give_back(self, owner: str, name: str) -> None:
        self._tries.give_back(name, self._holding.sender(owner, name))

    def _tell_of_more(self, owner: str) -> None:
        """Warn of leases of an owner whose names are unknown, after the others are released."""
        pool_type = type_of(owner)
        steps = look(self._connection, pool_type, seconds=_LOOK_SECONDS)
        metric = sleep_through(steps, interrupts=(), now=self._clock.elapsed)
        number = metric.owners.get(owner, 0)
        if number:
            note = LostNote(self._connection.address, pool_type, owner, self._clock.wall())
            self._warn(note.certain(number))
