"""Many processes that a pool serves by pace and by priority, some of them killed at any time.

What the pool did is judged by its own events, which are written with each step. In CI it is short;
``LEASECTL_TEST_FULL_TURNS=1`` has the full size, and judges how long all of it took as well.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.model import Request
from leasectl.pools import admin
from leasectl.state.event import Event, EventFilter
from tests.crash.contenders import Participant
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.history import read_history, violations
from tests.kit.invariants import broken_invariants
from tests.kit.pacing import STALL_SECONDS, middle_gap, too_fast, too_late, unfair
from tests.kit.support import Cli
from tests.kit.waits import eventually

FULL = bool(os.environ.get("LEASECTL_TEST_FULL_TURNS"))
ANY = Request("T")
# Those on which a pool keeps order and pace.
BACKENDS = ["local"]


@dataclass
class Arrival:
    """A process that comes, acquires, holds, gives back and ends.

    Args:
        request: What it asks for.
        after: When it comes, in seconds from the start.
        hold: For how long it holds, in seconds.
        killed_after: When it is killed, in seconds from the start; None for never.
        killed_waiting: By then at the earliest, once it waits.
        rounds: How often it does all that.
    """

    request: Request = ANY
    after: float = 0.0
    hold: float = 0.0
    killed_after: float | None = None
    killed_waiting: bool = False
    rounds: int = 1


@dataclass
class Campaign:
    """A pool "T", and processes that share it."""

    cli: Cli
    folder: Path
    backend: str
    capacity: int = 0
    settings: PoolSettings = field(default_factory=PoolSettings)

    def make_pool(self, capacity: int, settings: PoolSettings) -> None:
        self.capacity, self.settings = capacity, settings
        names = [f"T--{number}" for number in range(capacity)]
        with self.cli.service(backend=self.backend) as service:
            service.pools.create_pool("T", names, settings=settings)

    def run(self, arrivals: Sequence[Arrival]) -> tuple[list[Event], float]:
        """Have them all come; returns the pool's events, and when it began (wall clock)."""
        read_end, write_end = os.pipe()

        def come(arrival: Arrival) -> None:
            os.close(write_end)
            participant = Participant(
                self.cli.state_dir, self.folder / "history", guarded=True, backend=self.backend
            )
            os.read(read_end, 1)
            time.sleep(arrival.after)
            for _ in range(arrival.rounds):
                participant.hold(arrival.request, seconds=arrival.hold)
            participant.close()

        pids = [fork(lambda a=arrival: come(a)) for arrival in arrivals]  # type: ignore[misc]
        os.close(read_end)
        begin = time.time()
        os.close(write_end)
        doomed = [
            (a.killed_after, pid, a.killed_waiting)
            for a, pid in zip(arrivals, pids)
            if a.killed_after
        ]
        for after, pid, waiting in sorted(doomed):
            time.sleep(max(0.0, begin + after - time.time()))
            if waiting:
                eventually(lambda pid=pid: self._is_stopped_waiting(pid))  # type: ignore[misc]
            os.kill(pid, signal.SIGKILL)
        codes = [ending(pid) for pid in pids]
        assert set(codes) <= {0, -signal.SIGKILL}, codes
        with self.cli.service(backend=self.backend) as service:
            eventually(lambda: service.pools.pools("T")[0].held == 0, what="all is free")
            admin.show(service)  # who looks takes the dead out of the queue
            events = list(service.events.read(EventFilter(type="T")))
        assert broken_invariants(self.cli.state_dir) == []
        broken = violations(read_history(self.folder / "history"), capacity=self.capacity)
        assert [each for each in broken if not each.startswith("ticket ")] == []  # `unfair` says
        return events, begin

    def _is_stopped_waiting(self, pid: int) -> bool:
        """Stop a process if it waits, and tell whether it does; else it goes on."""
        with self.cli.service(backend=self.backend) as service:

            def waits() -> bool:
                return pid in [entry.pid for entry in service.pools.pools("T")[0].queue]

            if not waits():
                return False
            os.kill(pid, signal.SIGSTOP)
            if waits():
                return True
            os.kill(pid, signal.SIGCONT)  # it was its turn in between
            return False


@pytest.fixture(params=[pytest.param(b, marks=[pytest.mark.once]) for b in BACKENDS])
def campaign(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> Campaign:
    if request.param == "local":
        return Campaign(cli, tmp_path, "local:")
    server: EtcdServer = request.getfixturevalue("etcd")
    prefix: str = request.getfixturevalue("prefix")
    return Campaign(cli, tmp_path, f"etcd://{','.join(server.endpoints)}{prefix}")


def granted(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind == "granted"]


def killed(events: Sequence[Event], arrivals: Sequence[Arrival]) -> bool:
    return any(a.killed_after for a in arrivals) and any(e.kind == "gave up" for e in events)


class TestPace:
    PACE = 2.0 if FULL else 0.8
    JOBS = 40 if FULL else 7

    def test_all_at_once_are_granted_one_for_each_pace_in_order(self, campaign: Campaign) -> None:
        campaign.make_pool(5, PoolSettings(pace_seconds=self.PACE))
        rng = random.Random(1)
        arrivals = [Arrival(hold=rng.random() * 3 * self.PACE) for _ in range(self.JOBS)]
        events, _ = campaign.run(arrivals)
        times = [event.time for event in granted(events)]
        assert len(times) == self.JOBS
        assert too_fast(times, pace=self.PACE, slack=STALL_SECONDS) == []
        assert unfair(events) == []
        needed = (self.JOBS - 1) * self.PACE
        print(f"{times[-1] - times[0]:.3f}s for {needed:.1f}s")
        assert middle_gap(times) <= 1.5 * self.PACE
        if FULL:
            assert times[-1] - times[0] <= 1.05 * needed

    def test_whoever_is_killed_no_time_is_lost_and_none_is_used_twice(
        self, campaign: Campaign
    ) -> None:
        campaign.make_pool(5, PoolSettings(pace_seconds=self.PACE))
        rng = random.Random(2)
        # In the short form, when two have been granted: of three, one waits still.
        first, last = (0.05, self.JOBS * self.PACE * 0.8) if FULL else (1.0, 1.5)
        arrivals = [
            Arrival(
                hold=rng.random() * 3 * self.PACE,
                killed_after=rng.uniform(first, last) if number % 3 == 0 else None,
            )
            for number in range(self.JOBS)
        ]
        # On a busy machine the others may not be in the queue by then. This one comes after them.
        arrivals[-1] = replace(
            arrivals[-1], after=first * 0.9, killed_after=last, killed_waiting=True
        )
        events, _ = campaign.run(arrivals)
        assert killed(events, arrivals)
        assert (
            too_fast([e.time for e in granted(events)], pace=self.PACE, slack=STALL_SECONDS) == []
        )
        assert unfair(events) == []
        assert too_late(events, pace=self.PACE, slack=max(1.0, self.PACE)) == []

    def test_a_burst_comes_at_once_and_no_more_than_the_rule_allows(
        self, campaign: Campaign
    ) -> None:
        campaign.make_pool(5, PoolSettings(pace_seconds=self.PACE, burst=3))
        rng = random.Random(3)
        arrivals = [
            Arrival(after=rng.random() * 2 * self.PACE, hold=rng.random() * self.PACE)
            for _ in range(self.JOBS // 2)
        ]
        events, _ = campaign.run(arrivals)
        times = [event.time for event in granted(events)]
        assert len(times) == len(arrivals)
        assert too_fast(times, pace=self.PACE, burst=3, slack=STALL_SECONDS) == []


class TestPriority:
    JOBS = 60

    def arrivals(self, rng: random.Random) -> list[Arrival]:
        """They come at random, faster than they are served; a sixth is killed."""
        found = [
            Arrival(
                Request("T", priority=rng.randint(-5, 5)),
                after=rng.random() * 1.5,
                hold=rng.random() * 0.2,
                killed_after=rng.random() * 2.5 + 0.1 if number % 6 == 0 else None,
            )
            for number in range(self.JOBS)
        ]
        found[1].request = Request("T", count=3, priority=0)
        # All of the pool, after everybody else: in the middle of the stream it has to wait.
        found[6] = Arrival(
            Request("T", count=3, priority=-6), after=0.5, killed_after=0.5, killed_waiting=True
        )
        return found

    @pytest.mark.parametrize("aging", [0.0, 0.5])
    def test_each_grant_goes_to_the_best_who_waits(self, campaign: Campaign, aging: float) -> None:
        campaign.make_pool(3, PoolSettings(aging_seconds=aging))
        arrivals = self.arrivals(random.Random(4))
        events, begin = campaign.run(arrivals)
        assert killed(events, arrivals)
        grants = granted(events)
        assert any(event.count == 3 for event in grants)
        assert len({event.priority for event in grants}) > 5
        first = begin + min(a.killed_after for a in arrivals if a.killed_after)
        dead = {e.handle: e.time for e in events if e.kind == "gave up" and e.time >= first}
        assert unfair(events, aging=aging, killed=dead, slack=STALL_SECONDS) == []
        waited = sorted(event.wait_seconds or 0.0 for event in grants)
        print(f"{len(grants)} grants, waits up to {waited[-1]:.2f}s")

    def test_under_a_stream_of_better_ones_nobody_waits_for_longer_than_aging_says(
        self, campaign: Campaign
    ) -> None:
        aging, better = 0.3, 4
        campaign.make_pool(1, PoolSettings(aging_seconds=aging))
        # So many that some wait all the time, also on a busy machine.
        stream = [Arrival(Request("T", priority=better), hold=0.02, rounds=15) for _ in range(8)]
        events, _ = campaign.run([*stream, Arrival(Request("T", priority=0), after=0.1)])
        (low,) = [event for event in granted(events) if event.priority == 0]
        assert events[-1].time - low.time > 0.5, "the stream ended before it was its turn"
        # The upper limit is one of order, as a grant may take long: a ticket that was queued more
        # than this time after it, and slack, counts less, and no such ticket is granted before it.
        # On a busy machine it is queued long after it is asked for, but before the next ticket is.
        low_since = min(event.time for event in granted(events) if event.ticket > low.ticket)
        passed = [event for event in granted(events) if event.time < low.time]
        latest = max(event.time - (event.wait_seconds or 0.0) for event in passed)
        assert latest <= low_since + aging * (better + 1) + 0.5
        assert aging * better * 0.5 < (low.wait_seconds or 0.0)
        assert unfair(events, aging=aging, slack=STALL_SECONDS) == []
