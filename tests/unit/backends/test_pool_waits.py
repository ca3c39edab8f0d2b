"""What the pool algorithm asks for while it waits, without anybody sleeping."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.pool.turn import RECOVER_AGAIN_SECONDS
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.model import Claimant, Request
from leasectl.system.process import identify
from tests.kit.forking import ending, fork
from tests.kit.journal import NoJournal
from tests.kit.support import ManualClock


def test_what_can_not_be_tended_is_tried_each_second_and_not_in_a_spin(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MemoryStore(clock=clock, lost=lambda claim_key, names: None)
    pools = MemoryPools(store)
    pools.create_pool("T", ["T--00"])
    backend = PoolBackend("contract:", MemoryEngine(store), MemorySides(store), clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    pid = fork(signal.pause)
    holder = identify(pid)
    recovered = []
    patience = Patience(watched=lambda: [holder], recover=lambda: recovered.append(clock.elapsed()))
    steps = backend.turn(Claimant("next", "next", Request("T")), NoJournal(), patience)
    wanted = next(steps)
    assert wanted.until is None
    (pidfd,) = [fd for fd in wanted.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]

    os.kill(pid, signal.SIGKILL)
    ending(pid)
    for tries in range(1, 4):
        wanted = steps.send({pidfd} if tries == 1 else set())
        assert len(recovered) == tries
        assert pidfd not in wanted.fds
        assert wanted.until == clock.elapsed() + RECOVER_AGAIN_SECONDS
        manual_clock.advance(RECOVER_AGAIN_SECONDS)
    steps.close()
    assert pools.pools("T")[0].queue == ()


def test_who_waits_is_told_once_that_it_can_not_be_met_and_once_that_it_can_again(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    store = MemoryStore(clock=clock, lost=lambda claim_key, names: None)
    pools, warnings = MemoryPools(store), list[str]()
    pools.create_pool("T", ["T--00", "T--01"])
    backend = PoolBackend("contract:", MemoryEngine(store), MemorySides(store), clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    asked = Claimant("next", "next", Request("T", 2))
    steps = backend.turn(asked, NoJournal(), Patience(warn=warnings.append))
    next(steps)
    assert warnings == []
    pools.remove_resources("T", ["T--00"], force=True)
    for _ in range(2):
        steps.send(set())
    assert warnings == [
        'pool "T" has 1 resource that takes holders now, so --count 2 can\'t be met; it waits on '
        "until that changes"
    ]
    pools.add_resources("T", ["T--02", "T--03"])
    with suppress(StopIteration):
        steps.send(set())
    assert len(warnings) == 1
    (pool,) = pools.pools("T")
    assert (pool.held, pool.queue) == (2, ())
