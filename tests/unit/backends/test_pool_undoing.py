"""What the pool algorithm takes back on a store that undoes nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.errors import Cancelled, NotFound, StateUnwritable
from leasectl.model import Claimant, Lease, Request
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock


class FullDisk(NoJournal):
    """A journal that can't record a grant."""

    def __init__(self) -> None:
        self.given_up = 0

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        raise StateUnwritable("no space left")

    def gave_up(self) -> None:
        self.given_up += 1


@pytest.fixture
def store(manual_clock: ManualClock) -> MadeUpStore:
    store = MadeUpStore(manual_clock.clock)
    store.pools.create_pool("T", ["T--00"])
    return store


def backend_on(
    store: MadeUpStore, clock: ManualClock, engine: MadeUpEngine | None = None
) -> PoolBackend:
    engine = engine or MadeUpEngine(store)
    return PoolBackend(
        "contract:",
        engine,
        store.sides,
        clock=clock.clock,
    )


def held_and_waiting(store: MadeUpStore) -> tuple[int, int]:
    (pool,) = store.pools.pools("T")
    return pool.held, len(pool.queue)


def test_a_grant_that_can_not_be_recorded_is_given_back(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_on(store, manual_clock)
    with pytest.raises(StateUnwritable):
        backend.acquire(Claimant("me", "me", Request("T")), journal, Patience())
    assert held_and_waiting(store) == (0, 0)
    assert journal.given_up == 1


def test_a_grant_after_a_wait_that_can_not_be_recorded_is_given_back(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_on(store, manual_clock)
    backend.acquire(Claimant("holder", "holder", Request("T")), NoJournal(), Patience())
    steps = backend.turn(Claimant("me", "me", Request("T")), journal, Patience())
    wanted = next(steps)
    backend.release("holder", ["T--00"])
    with pytest.raises(StateUnwritable):
        steps.send(set(wanted.fds))
    assert held_and_waiting(store) == (0, 0)
    assert journal.given_up == 1


class WithdrawnAtOnce(MadeUpEngine):
    """A store on which a ticket can be taken away before its owner has looked."""

    def waiter(self, claimant: Claimant, *, until: float | None) -> LocalWaiter:
        waiter = super().waiter(claimant, until=until)
        put = waiter.enqueue

        def put_for_a_moment(*, again: bool = False) -> None:
            put(again=again)
            self.withdraw(claimant.claim_key)

        waiter.enqueue = put_for_a_moment  # type: ignore[method-assign]
        return waiter


def test_a_request_that_is_withdrawn_before_its_first_look_was_cancelled(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    with pytest.raises(Cancelled, match="released while it waited"):
        backend_on(store, manual_clock, WithdrawnAtOnce(store)).acquire(
            Claimant("me", "me", Request("T")), journal, Patience()
        )
    assert journal.given_up == 1


def test_a_request_that_was_refused_is_no_longer_on_record(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    with pytest.raises(NotFound):
        backend_on(store, manual_clock).acquire(
            Claimant("me", "me", Request("U")), journal, Patience()
        )
    assert journal.given_up == 1
