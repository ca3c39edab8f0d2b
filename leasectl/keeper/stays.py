"""Keep names in their pools on servers while processes live."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from leasectl.keeper.log import Log, described
from leasectl.keeper.retries import Key, Retries
from leasectl.keeper.server import Server
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state.watched import Stay, Stays
from leasectl.system.clock import Clock
from leasectl.system.process_watch import ProcessEnds
from leasectl.system.request_threads import Outcome, RequestThreads

# Opens, in the thread that calls it, a service with records of its own.
OpenService = Callable[[], Service]


class _Job(NamedTuple):
    stay: Stay
    has_ended: bool


class KeptStays:
    """Renews a membership three times a ttl while its process lives, and ends it after that.

    Args:
        service: On the state directory that is kept.
        open_service: What a thread asks servers with.
        ends: Of the processes, which the caller follows.
        clock: Where times come from.
        log: Where events are written.
    """

    def __init__(
        self,
        service: Service,
        open_service: OpenService,
        ends: ProcessEnds,
        *,
        clock: Clock,
        log: Log,
    ) -> None:
        self._stays = Stays(service.state)
        self._state = service.state
        self._open_service = open_service
        self._ends = ends
        self._clock = clock
        self._log = log
        self._retries = Retries(clock=clock, log=log)
        self._renewed_at: dict[Stay, float] = {}
        self._threads: RequestThreads[Server, _Job, bool] = RequestThreads(self._begin, clock=clock)

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return self._threads.fd

    def processes(self) -> list[Process]:
        """Whose end ends a membership."""
        return [stay.process for stay in self._stays.all()]

    def go(self) -> list[float | None]:
        """Renew and end what is due, or have threads do it; returns when each is due next."""
        stays = self._stays.all()
        self._retries.keep_only({_key(stay) for stay in stays})
        self._renewed_at = {s: at for s, at in self._renewed_at.items() if s in stays}
        return [self._see_to(stay) for stay in stays]

    def take_outcomes(self) -> None:
        """Note what came of what threads were asked to do."""
        for outcome in self._threads.outcomes():
            self._note(outcome)

    def _see_to(self, stay: Stay) -> float | None:
        has_ended, now = self._ends.has_ended(stay.process), self._clock.elapsed()
        due = self._retries.at(_key(stay))
        if due is None:
            renewed_at = -math.inf if has_ended else self._renewed_at.get(stay, -math.inf)
            due = renewed_at + stay.ttl_seconds / 3
        if now < due:
            return due
        self._threads.send(Server(stay.backend, stay.settings), _Job(stay, has_ended))
        return None

    def _begin(self, server: Server) -> Callable[[_Job], bool]:
        from leasectl.pools.joining import end_stay, stay

        members = self._open_service().backend_at(server.url, server.settings).members

        return lambda job: (end_stay if job.has_ended else stay)(members, job.stay)

    def _note(self, outcome: Outcome[_Job, bool]) -> None:
        stay, has_ended = outcome.job
        try:
            is_as_joined = outcome.result()
        except ImportError:
            raise  # the code is gone, for every job
        except Exception as error:
            what = f"the membership of {stay.name} in {stay.type}"
            text = f"can't renew or end {what}: {described(error)}"
            self._retries.failed(_key(stay), text, longest_seconds=stay.ttl_seconds / 6)
            return
        self._retries.succeeded(_key(stay))
        if is_as_joined and not has_ended:
            self._renewed_at[stay] = outcome.sent_at
            return
        why = "its process has ended" if has_ended else "it isn't there as it has joined any more"
        self._log.write(f"done with {stay.name} in {stay.type}: {why}")
        with self._state.transaction():
            self._stays.forget_this(stay)


def _key(stay: Stay) -> Key:
    return Key(f"{stay.backend} {stay.name}", 0)
