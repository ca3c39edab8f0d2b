"""What the pool algorithm asks for while it waits, without anybody sleeping."""

from __future__ import annotations

import os
import signal

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import TEND_AGAIN_SECONDS, PoolBackend
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.model import Claimant, Request
from leasectl.system.process import identify
from tests.contract.world import NoJournal
from tests.kit.support import ManualClock, fork


def test_what_can_not_be_tended_is_tried_each_second_and_not_in_a_spin(
    manual_clock: ManualClock,
) -> None:
    clock = manual_clock.clock
    engine = MemoryEngine(clock=clock, lost=lambda owner, names: None)
    engine.create_pool("T", ["T--00"])
    backend = PoolBackend("contract:", engine, engine, clock=clock)
    backend.acquire(Claimant("first", "first", Request("T")), NoJournal(), Patience())
    pid = fork(signal.pause)
    holder = identify(pid)
    tended = []
    patience = Patience(watched=lambda: [holder], tend=lambda: tended.append(clock.elapsed()))
    steps = backend.acquisition(Claimant("next", "next", Request("T")), NoJournal(), patience)
    nap = next(steps)
    assert nap.until is None
    (pidfd,) = [fd for fd in nap.fds if "pidfd" in os.readlink(f"/proc/self/fd/{fd}")]

    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for tries in range(1, 4):
        nap = steps.send({pidfd} if tries == 1 else set())
        assert len(tended) == tries
        assert pidfd not in nap.fds
        assert nap.until == clock.elapsed() + TEND_AGAIN_SECONDS
        manual_clock.advance(TEND_AGAIN_SECONDS)
    steps.close()
    assert engine.pools("T")[0].queue == ()
