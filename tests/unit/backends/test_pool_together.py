"""leasectl.backends.pool.together: races that the contract can't bring about."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import PoolWaiter
from leasectl.model import Claimant, Lease, Request
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock

BOTH = Request("A", other_types=("B",), needs_all=True)


class LosingEngine(MadeUpEngine):
    """A store in which others are faster, some times in a row, and take what nobody sees."""

    races_lost = 0

    def claim_all(self, waiters: Sequence[PoolWaiter]) -> tuple[Lease, ...] | None:  # type: ignore[override]
        self.races_lost += 1
        return None if self.races_lost <= 5 else super().claim_all(waiters)


def test_after_a_lost_race_it_looks_again_without_being_woken(manual_clock: ManualClock) -> None:
    clock = manual_clock.clock
    store = MadeUpStore(clock)
    for pool_type in "AB":
        store.pools.create_pool(pool_type, [f"{pool_type}--00"])
    engine = LosingEngine(store)
    backend = PoolBackend("made-up:", engine, store.sides, clock=clock)
    journal = NoJournal()
    steps = backend.turn(Claimant("me", "me", BOTH), journal, Patience())
    with contextlib.suppress(StopIteration):
        sleep = next(steps)
        while True:
            assert sleep.until is not None, "nothing wakes it"
            manual_clock.advance(sleep.until - clock.elapsed())
            sleep = steps.send(set())
    assert [each.name for each in journal.leases or ()] == ["A--00", "B--00"]
