"""Keep names in their pools on servers while processes live."""

from __future__ import annotations

import math
from typing import NamedTuple

from leasectl.keeper.job import Job
from leasectl.keeper.log import Log
from leasectl.keeper.server import Server
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state.watched import Stay, Stays
from leasectl.system.process_watch import ProcessEnds


class _Look(NamedTuple):
    stay: Stay
    has_ended: bool


class KeptStays(Job[_Look, bool]):
    """Renews a membership three times a ttl while its process lives, and ends it after that.

    Args:
        service: On the state directory that is kept.
        ends: Of the processes, which the caller follows.
        log: Where events are written.
    """

    def __init__(self, service: Service, ends: ProcessEnds, log: Log) -> None:
        super().__init__(service, log)
        self._stays = Stays(service.state)
        self._ends = ends
        self._renewed_at: dict[Stay, float] = {}

    def processes(self) -> list[Process]:
        """Return the processes whose end ends a membership."""
        return [stay.process for stay in self.stays()]

    def stays(self) -> list[Stay]:
        """Return the memberships that the keeper renews or ends."""
        return self._stays.all()

    def go(self) -> list[float | None]:
        """Renew and end what is due by threads; return when each is due next."""
        stays = self.stays()
        self.keep_only(stays)
        self._renewed_at = {s: at for s, at in self._renewed_at.items() if s in stays}
        return [self._see_to(stay) for stay in stays]

    def _see_to(self, stay: Stay) -> float | None:
        has_ended = self._ends.has_ended(stay.process)
        renewed_at = -math.inf if has_ended else self._renewed_at.get(stay, -math.inf)
        due = renewed_at + stay.ttl_seconds / 3
        return due if self._clock.elapsed() < due else self.attempt(_Look(stay, has_ended))

    def _key(self, item: _Look) -> Stay:
        return item.stay

    def _server(self, item: _Look) -> Server:
        return Server(item.stay.backend, item.stay.settings)

    def _do(self, service: Service, item: _Look) -> bool:
        from leasectl.pools.joining import end_stay, stay

        members = service.backend_at(item.stay.backend, item.stay.settings).members
        return (end_stay if item.has_ended else stay)(members, item.stay)

    def _succeeded(self, item: _Look, result: bool, sent_at: float) -> None:
        stay, has_ended = item
        if result and not has_ended:
            self._renewed_at[stay] = sent_at
            return
        why = (
            "its process has ended"
            if has_ended
            else "it left the pool, or joined again in another way"
        )
        self._log.write(f"no longer renewing {stay.name} in {stay.type}: {why}")
        with self._service.state.transaction():
            self._stays.forget_this(stay)

    def _failed(self, item: _Look, error: Exception) -> float:
        stay = item.stay
        what = f"renew or end the membership of {stay.name} in {stay.type}"
        return self._retries.failed(stay, what, error, stay.ttl_seconds / 6)
