"""What the pool algorithm takes back on a store that undoes nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.memory.engine import MemoryEngine, MemoryWaiter
from leasectl.errors import Cancelled, NotFound, StateUnwritable
from leasectl.model import Claimant, Lease, Request, Ticket
from tests.kit.journal import NoJournal
from tests.kit.support import ManualClock


class FullDisk(NoJournal):
    """A journal that can't record a grant."""

    def __init__(self) -> None:
        self.given_up = 0

    def granted(self, leases: Sequence[Lease]) -> None:
        raise StateUnwritable("no space left")

    def gave_up(self) -> None:
        self.given_up += 1


@pytest.fixture
def engine(manual_clock: ManualClock) -> MemoryEngine:
    engine = MemoryEngine(clock=manual_clock.clock, lost=lambda claim_key, names: None)
    engine.create_pool("T", ["T--00"])
    return engine


def backend_of(engine: MemoryEngine, clock: ManualClock) -> PoolBackend:
    return PoolBackend("contract:", engine, engine, clock=clock.clock)


def test_a_grant_that_can_not_be_recorded_is_given_back(
    engine: MemoryEngine, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_of(engine, manual_clock)
    with pytest.raises(StateUnwritable):
        backend.acquire(Claimant("me", "me", Request("T")), journal, Patience())
    (pool,) = engine.pools("T")
    assert (pool.held, pool.queue, journal.given_up) == (0, (), 1)


def test_a_grant_after_a_wait_that_can_not_be_recorded_is_given_back(
    engine: MemoryEngine, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_of(engine, manual_clock)
    backend.acquire(Claimant("holder", "holder", Request("T")), NoJournal(), Patience())
    steps = backend.turn(Claimant("me", "me", Request("T")), journal, Patience())
    wanted = next(steps)
    engine.free("holder")
    with pytest.raises(StateUnwritable):
        steps.send(set(wanted.fds))
    (pool,) = engine.pools("T")
    assert (pool.held, pool.queue, journal.given_up) == (0, (), 1)


class WithdrawnAtOnce(MemoryEngine):
    """A store on which a ticket can be taken away before its owner has looked."""

    def enqueue(self, claimant: Claimant, waiter: MemoryWaiter) -> Ticket:
        ticket = super().enqueue(claimant, waiter)
        self.withdraw(claimant.claim_key)
        return ticket


def test_a_request_that_is_withdrawn_before_its_first_look_was_cancelled(
    manual_clock: ManualClock,
) -> None:
    engine = WithdrawnAtOnce(clock=manual_clock.clock, lost=lambda claim_key, names: None)
    engine.create_pool("T", ["T--00"])
    journal = FullDisk()
    with pytest.raises(Cancelled, match="released while it waited"):
        backend_of(engine, manual_clock).acquire(
            Claimant("me", "me", Request("T")), journal, Patience()
        )
    assert journal.given_up == 1


def test_a_request_that_was_refused_is_no_longer_on_record(
    engine: MemoryEngine, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    with pytest.raises(NotFound):
        backend_of(engine, manual_clock).acquire(
            Claimant("me", "me", Request("U")), journal, Patience()
        )
    assert journal.given_up == 1
