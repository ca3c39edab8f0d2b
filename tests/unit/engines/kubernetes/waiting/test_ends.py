"""Processes that have ended on one's own machine are believed to have, and no others."""

from __future__ import annotations

import contextlib
import os
import select
import signal

import pytest

from leasectl.engines.cluster.objects import Selection
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.cluster.turns import in_order
from leasectl.engines.cluster.waiter import ProcessEnds
from leasectl.engines.rules.membership import Lifetime, join
from leasectl.model import Claimant, Process, Request
from leasectl.system.process import identify, this_process
from tests.kit.forking import ending, fork
from tests.kit.kubernetes import made_up_process
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.support import ManualClock

DEAD = this_process()._replace(start_time=1)
ELSEWHERE = [DEAD._replace(boot_id="another"), DEAD._replace(pid_namespace=1)]
EDITED = [DEAD._replace(pid=pid) for pid in (-1, 0, 2**22 + 1, 2**80)]


class TestWaiters:
    """Who is dead before one costs no ttl where that can be known."""

    @pytest.fixture
    def api(self) -> MadeUpApi:
        return MadeUpApi()

    @pytest.fixture
    def alive(self, api: MadeUpApi, manual_clock: ManualClock) -> made_up_process.Process:
        alive = made_up_process.Process(api, manual_clock.clock)
        alive.pools.create_pool("T", ["a"])
        return alive

    def wait(self, process: made_up_process.Process, key: str, waits: Process | None) -> None:
        claimant = Claimant(key, key, Request("T"), waits)
        process.engine.waiter(claimant, until=None).enqueue(again=True)

    def test_many_are_passed_at_once(self, alive: made_up_process.Process) -> None:
        for number in range(8):
            self.wait(alive, f"dead/{number}", DEAD._replace(start_time=number + 1))
        assert alive.acquire("alive/1", Request("T"))
        left = alive.opened.objects.list(Selection(kinds=("ticket",))).items
        assert {getattr(each, "claim_key", "") for each in left} <= {"state/alive/1"}

    @pytest.mark.parametrize("process", [None, *ELSEWHERE, *EDITED, this_process()])
    def test_who_may_live_keeps_its_place(
        self, alive: made_up_process.Process, process: Process | None
    ) -> None:
        self.wait(alive, "other/1", process)
        assert alive.acquire("alive/1", Request("T")) == ()

    def test_so_does_who_is_of_another_state_directory(
        self, alive: made_up_process.Process, api: MadeUpApi, manual_clock: ManualClock
    ) -> None:
        other = made_up_process.Process(api, manual_clock.clock, state_id="other")
        self.wait(other, "other/1", DEAD)
        assert alive.acquire("alive/1", Request("T")) == ()

    def test_a_death_wakes_who_waits_behind(self, alive: made_up_process.Process) -> None:
        pid = fork(signal.pause)
        process = identify(pid)
        self.wait(alive, "killed/1", process)
        self.wait(alive, "behind/1", this_process())
        opened = alive.opened
        view = opened.context.pool("T")
        ends = ProcessEnds(opened.context)
        ends.see(in_order(view)[-1], view)
        fds, _ = ends.listen(())
        assert len(fds) == 1
        assert not opened.context.observed.look(view).over.tickets
        os.kill(pid, signal.SIGKILL)
        ending(pid)
        woken, _, _ = select.select(fds, [], [], 0)
        assert not ends.heard(set(woken)), "nobody was asked for"
        assert opened.context.observed.look(view).over.tickets == {in_order(view)[0].id.name}
        ends.close()


def test_who_asks_for_a_process_is_told_of_its_end(manual_clock: ManualClock) -> None:
    opened = made_up_process.Process(MadeUpApi(), manual_clock.clock).opened
    ends, before = ProcessEnds(opened.context), pidfds()
    pid = fork(signal.pause)
    process = identify(pid)
    fds, has_ended = ends.listen([process])
    assert (len(fds), has_ended) == (1, False)
    os.kill(pid, signal.SIGKILL)
    ending(pid)
    assert ends.heard(fds)
    assert ends.listen([process]) == (set(), True)
    assert not opened.context.observed.has_ended(process), "it needn't be one that waits"
    ends.listen([this_process()])
    ends.close()
    assert pidfds() == before


def pidfds() -> int:
    """How many are open; connections of earlier tests may still be closing."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += "pidfd" in os.readlink(f"/proc/self/fd/{each}")
    return count


@pytest.mark.parametrize(
    ("process", "is_over"), [(DEAD, True), *((each, False) for each in ELSEWHERE)]
)
def test_a_name_stays_for_as_long_as_a_process_that_may_be_elsewhere(
    manual_clock: ManualClock, process: Process, is_over: bool
) -> None:
    member = made_up_process.Process(MadeUpApi(), manual_clock.clock)
    member.pools.create_pool("T", ["a"])
    lifetime = Lifetime(process=process)
    member.opened.members.update(["n"], lambda m, pools: join(m, "T", pools, lifetime=lifetime))
    looked = Observed(manual_clock.clock).look(member.opened.context.pool("T"))
    assert bool(looked.over.lives) == is_over
