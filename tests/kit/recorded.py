"""Records of handles that a test writes, reads, or leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.model import Claimant, Handle, Lease, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.process import this_process


def record(state: State, handle_id: str, request: Request, *, now: float) -> None:
    """Record that a handle acquires, from now on (on the elapsed clock)."""
    handle = Handle(
        id=handle_id,
        backend="local:",
        request=request,
        owner="job/1",
        holder_identity=f"job/1/host/{handle_id}",
        state="acquiring",
        acquisition=1,
    )
    with state.transaction():
        Handles(state).create(handle, remote=False, now=now)


def waiter(
    engine: LocalEngine, state: State, handle_id: str, request: Request, *, now: float
) -> LocalWaiter:
    """Record that a handle acquires; returns who waits for it, with no ticket yet."""
    record(state, handle_id, request, now=now)
    claimant = Claimant(handle_id, f"job/1/host/{handle_id}", request, this_process())
    return engine.waiter(claimant, until=None)


def watched(state: State) -> list[Handle]:
    """Those that a keeper has to watch, release or renew, as they are on record."""
    return [Handles(state).require(each.id) for each in Handles(state).watched()]


class NoJournal:
    """Writes nothing down.

    Attributes:
        leases: What was granted last; None while nothing has been.
    """

    leases: tuple[Lease, ...] | None = None

    def enqueuing(self) -> None:
        """Not noted."""

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        """Only kept, for the test."""
        self.leases = tuple(leases)

    def gave_up(self) -> None:
        """Not noted."""

    def to_undo(self) -> None:
        """Not noted."""
