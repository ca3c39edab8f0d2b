"""What the keeper does when it is awake: one round, in which it does all that is due."""

from __future__ import annotations

import functools
import os
from typing import Callable

from leasectl.backends.kinds import LOCAL
from leasectl.keeper.answers import Answers
from leasectl.keeper.log import Log
from leasectl.keeper.releases import Releases
from leasectl.keeper.renewals import Renewals, keeper_renews
from leasectl.keeper.retries import key_meant, key_of
from leasectl.keeper.stays import KeptStays
from leasectl.keeper.unused_pools import UnusedPools
from leasectl.keeper.witness import Witness
from leasectl.leases import recovery
from leasectl.leases.caller import Caller
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Process, ReleaseTarget
from leasectl.state.directory import State
from leasectl.system.clock import Clock, earliest


class Rounds:
    """The keeper's work.

    Args:
        service: On the state directory that is kept.
        clock: Where times come from.
        log: Where events are written.
    """

    def __init__(self, service: Service, *, clock: Clock, log: Log) -> None:
        self._service = service
        self._clock = clock
        self._log = log
        self._releases = Releases(service, self._open_release, clock=clock, log=log)
        self._answers = Answers(service, self._open_service, clock=clock, log=log)
        self._renewals = Renewals(service, clock=clock, log=log, noted=self._answers.heed)
        self._stays = KeptStays(service, self._open_service, clock=clock, log=log)
        self._unused = UnusedPools(service, self._open_service, clock=clock, log=log)
        self._witness = Witness(service, clock=clock, log=log)

    def go(self) -> float | None:
        """Do all that is due.

        Returns:
            When something is due next, CLOCK_BOOTTIME in seconds; None when only events can
            bring work.
        """
        self._releases.take_outcomes()
        self._renewals.take_outcomes()
        self._answers.take_outcomes()
        self._stays.take_outcomes()
        self._unused.take_outcomes()
        times = [self._releases.release(target) for target in recovery.due(self._service)]
        handles = self._service.handles.watched()
        times += [self._renewals.renew(handle) for handle in handles if keeper_renews(handle)]
        times += self._stays.go()
        times += self._unused.go()
        times.append(self._answers.go(handles))
        under_way = self._releases.under_way()
        times += [
            timer.due_at
            for timer in self._service.handles.timers.armed()
            if key_meant(timer.target) not in under_way
        ]
        known = {key_of(handle) for handle in handles}
        self._releases.keep_only(known)
        self._renewals.keep_only(known)
        self._answers.keep_only(known)
        return earliest(*times, self._witness.go())

    def is_needed(self) -> bool:
        """Tell whether there is anything to keep, or to watch over."""
        return self._service.handles.any_watched() or self._witness.is_needed

    def processes(self) -> list[Process]:
        """Whose end brings work."""
        handles = self._service.handles.watched()
        some = [p for handle in handles for p in (handle.guard, handle.waiter, handle.runner)]
        found = [process for process in some if process is not None]
        for each in (self._stays, self._unused, self._witness):
            found += each.processes()
        return found

    def fds(self) -> list[int]:
        """What becomes readable when there is work for another reason."""
        asking = (self._releases, self._renewals, self._answers, self._stays, self._unused)
        return [each.fd for each in (*asking, self._witness) if each.fd is not None]

    def fire_timers(self) -> None:
        """Release now what was to be released later."""
        for timer in self._service.handles.timers.armed():
            self._releases.release_here(timer.target)

    def _open_release(self) -> Callable[[ReleaseTarget], tuple[str, ...]]:
        return functools.partial(release, self._open_service())

    def _open_service(self) -> Service:
        """What a thread does things with: it has records of its own."""
        state, events = State.open(self._service.state.directory), self._service.state.events
        state.events.kept_seconds = events.kept_seconds
        state.events.kept_number = events.kept_number
        return open_service(state, self._clock, self._log)


def open_service(state: State, clock: Clock, log: Log) -> Service:
    """What the keeper does things with; each handle remembers its own backend."""
    caller = Caller(owner="keeper", host=os.uname().nodename)
    return Service(state, backend_url=LOCAL, caller=caller, warn=log.write, clock=clock)
