"""Let others pass waiters that don't claim when it is their turn.

A waiter calls it whenever it may claim, as often as leases change hands. So it doesn't look at
once, when it would only be in the waiter's way, but a moment later. It doesn't listen until then,
so what happens meanwhile costs it nothing.
"""

from __future__ import annotations

from leasectl.engines.local.witness import LocalWitness
from leasectl.keeper.log import Log
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state.database import errors_of
from leasectl.state.named_pipe import NamedPipe
from leasectl.system.clock import earliest
from leasectl.system.poll import is_readable
from leasectl.system.process_watch import ProcessEnds

_REST_SECONDS = 1.0


class Witness:
    """Looks when a waiter has called, and when a waiter's time is over.

    Args:
        service: On the state directory that is kept.
        ends: Of the processes, which the caller follows.
        log: Where events are written.
    """

    def __init__(self, service: Service, ends: ProcessEnds, log: Log) -> None:
        state, clock = service.state, service.clock
        self._clock = clock
        self._log = log
        self._pipe = NamedPipe(state.witness_pipe, shared=True)
        self._witness = LocalWitness(
            state, lost=service.losses.tell, clock=clock, has_ended=ends.has_ended
        )
        self._looks_at: float | None = clock.elapsed()  # a waiter may have called before
        self._is_called = True

    @property
    def fd(self) -> int | None:
        """A descriptor that is readable after a call; None while a call is pending."""
        return None if self._is_called else self._pipe.fd

    @property
    def is_needed(self) -> bool:
        """Whether anybody waits behind another."""
        return self._witness.is_needed()

    def go(self) -> float | None:
        """Look, if it is time to.

        Returns:
            When it is next, CLOCK_BOOTTIME in seconds; None when only a call can bring work.

        Raises:
            LeaseError: The records can't be read or written.
        """
        now = self._clock.elapsed()
        if not self._is_called and self._has_news():
            self._is_called = True
            self._looks_at = earliest(self._looks_at, now + _REST_SECONDS)
        if self._looks_at is not None and now >= self._looks_at:
            self._look()
        return self._looks_at

    def processes(self) -> list[Process]:
        """Processes whose end may let a stopped waiter's successors claim."""
        return self._witness.guards()

    def _has_news(self) -> bool:
        is_heard = is_readable(self._pipe.fd, 0) or not self._pipe.is_in_place()
        return is_heard or self._witness.has_any_guard_ended()

    def _look(self) -> None:
        with errors_of(self._pipe.path):
            self._pipe.renew()  # before the look, to miss no call
        self._is_called = False
        for pool_type, ticket, _ in self._witness.look():
            pid = ticket.waiter.pid if ticket.waiter else "unknown"
            self._log.write(
                f"suspended ticket {ticket.number} of {pool_type}: pid {pid} could have claimed "
                "and didn't; it keeps its queue position"
            )
        self._looks_at = self._witness.due()
