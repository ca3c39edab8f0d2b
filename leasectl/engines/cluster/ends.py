"""Notice at once when a waiter on the same machine ends.

A ticket says which process waits with it. Who is behind another one of the same state directory
follows that process, and so a waiter that was killed there costs nobody its ttl, also where no
keeper is. Of other state directories nothing is believed: they may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from leasectl.engines.cluster.objects import TicketObject
from leasectl.engines.cluster.place import Place
from leasectl.engines.cluster.turns import better_than
from leasectl.engines.cluster.view import PoolView
from leasectl.model import Process
from leasectl.system.process import this_process
from leasectl.system.process_watch import ProcessWatch

# More than one, as the nearest may be stopped; all would have a crowd wake at one end.
_MOST_FOLLOWED = 3
# Of Linux; anybody may have edited a ticket.
_HIGHEST_PID = 2**22


class Ends:
    """What one waiter hears of the ends of processes.

    Args:
        place: Knows what is of its own state directory, and is told which waiters are dead.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._observed = place.observed
        self._asked = ProcessWatch()
        self._before = ProcessWatch()

    def see(self, own: TicketObject, view: PoolView) -> None:
        """Follow those who wait before a ticket; those of them that have ended are noted."""
        there = [p for each in better_than(own, view) if (p := self._process_of(each))]
        while True:
            living = [each for each in there if not self._observed.has_ended(each)]
            if not self._before.update(living[-_MOST_FOLLOWED:]):
                return
            self._note()

    def listen(self, processes: Sequence[Process]) -> tuple[set[int], bool]:
        """Follow some others as well.

        Returns:
            What is readable when one of either has ended; and whether one of those has already.
        """
        self._asked.update(processes)
        return self._asked.fds() | self._before.fds(), self._asked.any_ended

    def heard(self, woken: Set[int]) -> bool:
        """Note the ends that a sleep was woken by; returns whether one was asked for."""
        has_ended = not woken.isdisjoint(self._asked.fds())
        self._asked.heard(woken)
        self._before.heard(woken)
        self._note()
        return has_ended

    def close(self) -> None:
        """Stop following."""
        self._asked.close()
        self._before.close()

    def _note(self) -> None:
        for process in self._before.ended:
            self._observed.note_end(process)

    def _process_of(self, ticket: TicketObject) -> Process | None:
        process, own = ticket.process, this_process()
        if process is None or process == own or process[:2] != own[:2]:  # of another machine
            return None
        if not 0 < process.pid <= _HIGHEST_PID:
            return None
        return process if self._place.is_from_here(ticket.claim_key) else None
