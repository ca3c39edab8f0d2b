"""Around a grant that the pace makes wait, the head is killed at each call into the system."""

from __future__ import annotations

import os
from pathlib import Path

from leasectl.backends.contract import Patience
from leasectl.engines.facts import PoolSettings
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.state.event import Event, EventFilter
from leasectl.system.clock import boottime_seconds
from tests.crash.sweeping import Sweep
from tests.kit.forking import ending, fork, leasectl
from tests.kit.killing import kill_at
from tests.kit.pacing import STALL_SECONDS, too_fast, unfair
from tests.kit.support import Cli, since_boot

PACE = 0.4
# Between a grant and a look at the clock others may run; a pace that was forgotten is all missing.
NOISE = STALL_SECONDS


class PaceSweep(Sweep):
    """A sweep with a pool "P" that has a pace; its head is killed, and another comes after it."""

    def __init__(self, cli: Cli, tmp_path: Path) -> None:
        super().__init__(cli, tmp_path)
        with self.service() as service:
            names = [f"P--{number}" for number in range(9)]
            service.pools.create_pool("P", names, settings=PoolSettings(PACE))

    def kill_head(self, number: int) -> int:
        """Have a grant be made, kill who waits for the next, and see when one behind it is served.

        Args:
            number: Of the event at which it is killed.
        """
        self.take("before it")
        priority = str(number // 2 % 2)  # of those, tickets have one row more
        guarded = ["--guard-pid", str(os.getpid()), "--priority", priority]
        arguments = ["acquire", "-q", "-t", "P", *guarded]

        def command() -> None:
            kill_at(number)
            leasectl(self.cli.state_dir, self.output, *arguments)

        code = ending(fork(command))
        owed_until = self.owed_until()
        served_at = self.take("behind it")
        assert served_at >= owed_until - NOISE, f"event {number}: the pace was forgotten"
        came_after = served_at - max(owed_until, self._asked_at)
        assert came_after < PACE + 0.5, f"event {number}: {came_after:.3f}s late"
        self.check(f"killed at event {number}")
        return code

    def take(self, why: str) -> float:
        """Take a lease of that pool and give it back; returns when it was granted, since boot."""
        self._asked_at = boottime_seconds()
        with self.service() as service:
            handle = acquire(service, Request("P"), patience=Patience(wait_seconds=10.0))
            announce(service, handle)
            granted_at = since_boot(handle.leases[0].acquire_time)
            release(service, whole(handle))
        return granted_at

    def owed_until(self) -> float:
        """When the last grant that there was has been paid for; the record has to agree."""
        last = [event for event in self.events() if event.kind == "granted"][-1]
        owed = since_boot(last.time) + PACE
        ((noted,),) = self.cli.query("SELECT paid_until FROM pool_setting WHERE type = 'P'")
        assert abs(float(str(noted)) - owed) < NOISE, "what was granted isn't what was paid"
        return owed

    def events(self) -> list[Event]:
        with self.service() as service:
            return list(service.events.read(EventFilter(type="P")))


def test_whenever_the_head_is_killed_the_pace_is_neither_lost_nor_owed_twice(
    cli: Cli, tmp_path: Path
) -> None:
    sweep = PaceSweep(cli, tmp_path)
    sweep.keep_a_keeper()
    sweep.kill_each(sweep.kill_head, stride=16)
    events = sweep.events()
    assert too_fast([e.time for e in events if e.kind == "granted"], pace=PACE, slack=NOISE) == []
    assert unfair(events) == []
    print(f"{sweep.kills} kills")
