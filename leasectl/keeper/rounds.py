"""One round: do everything that is due."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import LOCAL, Context
from leasectl.errors import StateUnwritable
from leasectl.keeper.answers import Answers
from leasectl.keeper.handles import KeptHandles
from leasectl.keeper.job import Retries
from leasectl.keeper.log import Log
from leasectl.keeper.releases import Releases
from leasectl.keeper.renewals import Renewals
from leasectl.keeper.server import load_code_for
from leasectl.keeper.stays import KeptStays
from leasectl.keeper.unused_pools import UnusedPools
from leasectl.keeper.witness import Witness
from leasectl.leases.service import Service
from leasectl.model import Process, ReleaseTarget
from leasectl.state.directory import State
from leasectl.system.clock import Clock, earliest
from leasectl.system.process_watch import ProcessEnds

# A part of a round that fails can delay waiters, so the pauses stay short.
_LONGEST_PAUSE_SECONDS = 10.0


class Rounds:
    """The keeper's work.

    Args:
        service: On the state directory that is kept.
        ends: Of the processes whose end may bring work; it follows them there.
        log: Where events are written.
    """

    def __init__(self, service: Service, ends: ProcessEnds, log: Log) -> None:
        self._service = service
        self._ends = ends
        self._clock = service.clock
        self._handles = KeptHandles(service.state, ends)
        self._releases = Releases(service, log)
        self._answers = Answers(service, log)
        self._renewals = Renewals(service, log, noted=self._answers.heed)
        self._stays = KeptStays(service, ends, log)
        self._unused = UnusedPools(service, ends, log)
        self._witness = Witness(service, ends, log)
        self._jobs = (self._releases, self._renewals, self._answers, self._stays, self._unused)
        self._followed: frozenset[Process] = frozenset()  # without those of handles
        self._abandoned: list[ReleaseTarget] = []  # at the first look of this round
        self._retries = Retries(service, log)  # of the parts of a round
        self._to_load = {LOCAL}  # URLs of backends

    def go(self) -> float | None:
        """Do all that is due. What fails holds up nothing else, and is tried again later.

        Returns:
            When something is due next, CLOCK_BOOTTIME in seconds; None when only events can
            bring work.

        Raises:
            ImportError: Code that it takes is gone.
            StateUnwritable: This process can never write; another keeper can.
        """
        parts: tuple[tuple[str, Callable[[], object]], ...] = (
            *((f"outcomes of {type(each).__name__}", each.take_outcomes) for each in self._jobs),
            ("processes", self._follow),
            ("handles", self._look),
            ("releases", self._release),
            ("handles", self._handles.look),
            ("handles", self._note_changes),
            ("renewals", self._renewals.go),
            ("memberships", self._stays.go),
            ("unused pools", self._unused.go),
            ("answers", lambda: self._answers.go(self._handles)),
            ("waiters", self._witness.go),
            # No process wakes it for its own changes, nor for those that ended during the round.
            ("processes", self._follow),
            ("handles", self._look_again),
            ("handles", self._handles.trim),
            ("all handles", self._handles.check),
        )
        return earliest(*(time for name, do in parts for time in self._do(name, do)))

    def load_code(self) -> None:
        """Load what all of it may need, as the installation may be deleted later."""
        self._to_load.update(each.backend for each in self._stays.stays())
        self._to_load.update(each.backend for each in self._unused.pools())
        while self._to_load:
            load_code_for(self._to_load.pop())

    def _do(self, name: str, do: Callable[[], object]) -> list[float | None]:
        """Do a part of a round, unless it failed a moment ago; return when more of it is due."""
        put_off = self._retries.put_off(name)
        if put_off is not None:
            return [put_off]
        try:
            due = do()
        except Exception as error:
            return [self._retries.failed(name, f"go on with {name}", error, _LONGEST_PAUSE_SECONDS)]
        self._retries.succeeded(name)
        if isinstance(due, list):
            return due
        return [due] if isinstance(due, float) else []

    def _look(self) -> None:
        self._handles.look()
        self._abandoned = self._handles.abandoned()

    def _release(self) -> list[float | None]:
        """Release what the dead held and what is due by now; return when more is due."""
        now, timers = self._clock.elapsed(), self._service.handles.timers
        targets = (*self._abandoned, *timers.due(now))
        times = [self._releases.attempt(target) for target in targets]
        return [*times, timers.next_after(now)]

    def _look_again(self) -> float | None:
        """Return when there is more to do: at once if anything has come since the first look."""
        is_more = self._handles.look() or not set(self._handles.abandoned()) <= set(self._abandoned)
        return self._clock.elapsed() if is_more else None

    def _note_changes(self) -> None:
        """Tell all parts about the changes."""
        for handle_id, handle in self._handles.take_changed().items():
            if handle is not None:
                self._to_load.add(handle.backend)
            is_ours = handle is not None and self._handles.to_renew(handle)
            self._renewals.see_to(handle_id, handle if is_ours else None)
        self._releases.keep_only(self._handles)
        self._answers.keep_only(self._handles)

    def _follow(self) -> None:
        """Follow the processes beside those of handles whose end brings work."""
        wanted = frozenset(self.processes())
        before, self._followed = self._followed, wanted
        self._ends.follow(wanted - before)
        self._ends.leave(before - wanted)

    def is_needed(self) -> bool:
        """Return whether there is anything to keep, or to watch over."""
        return self._service.handles.any_watched() or self._witness.is_needed

    def processes(self) -> list[Process]:
        """Return the processes whose end brings work, beside those of handles."""
        return [p for each in (self._stays, self._unused, self._witness) for p in each.processes()]

    def fds(self) -> list[int]:
        """Return what becomes readable when there is work for another reason."""
        return [each.fd for each in (*self._jobs, self._witness) if each.fd is not None]

    def fire_timers(self) -> None:
        """Release now what was to be released later."""
        for timer in self._service.handles.timers.armed():
            with contextlib.suppress(ImportError, StateUnwritable):
                self._releases.do_here(timer.target)


def open_service(state: State, clock: Clock, log: Log) -> Service:
    """Return what the keeper does things with; each handle remembers its own backend."""
    caller = Caller(owner="keeper", host=os.uname().nodename)
    return Service(state, Context(LOCAL, caller=caller, warn=log.write, clock=clock))
