"""Run the jobs, and compute the outcome."""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from leasectl.backends.contract import Patience, Turn
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.engine import LocalEngine, LocalSides
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.model import Claimant, Lease, Request
from leasectl.pools.simulation.jobs import Job
from leasectl.pools.simulation.policies import Policy
from leasectl.pools.statistics import PictureRow, Spread, Window, spread, starts_within
from leasectl.pools.timeline import Timeline
from leasectl.state.event import Event
from leasectl.state.in_memory import MemoryState, record
from leasectl.system.clock import Clock
from leasectl.system.poll import Sleep
from leasectl.text.wording import printable


class VirtualWaker:
    """What wakes a turn here: no descriptor, just a number."""

    def __init__(self, fd: int, rung: list[int]) -> None:
        self.fd = fd
        self._rung = rung

    def set(self) -> None:
        self._rung.append(self.fd)

    def clear(self) -> None:
        """A number says nothing for longer than it is heard."""

    def close(self) -> None:
        """There is nothing behind it."""


class VirtualTime:
    """Runs turns and whatever was arranged, in the order of their times.

    What is due at the same time happens in the order in which it was arranged, so that the same
    is the same again.

    Args:
        start: What the clock shows at first, as elapsed time, in seconds.
        epoch: The wall clock at the elapsed time 0, in seconds since the epoch.

    Attributes:
        clock: What the store takes its time from.
        sleeps: How often a turn has slept.
        failures: What turns have ended with instead of leases.
    """

    def __init__(self, start: float = 0.0, *, epoch: float = 0.0) -> None:
        self._now = start
        self.clock = Clock(elapsed=lambda: self._now, wall=lambda: epoch + self._now)
        self.sleeps = 0
        self.failures: list[LeaseError] = []
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._rung: list[int] = []
        self._sleeping: dict[int, _Sleeper] = {}  # by the numbers of their wakers

    def new_waker(self) -> VirtualWaker:
        """What wakes one more waiter."""
        return VirtualWaker(next(self._order), self._rung)

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Arrange for something to be done in some time."""
        self.at(self._now + seconds, do)

    def at(self, time: float, do: Callable[[], object]) -> None:
        """Arrange for something to be done at a time of the clock, at once if that is over."""
        heapq.heappush(self._agenda, (time, next(self._order), do))

    def begin(self, turn: Turn, then: Callable[[], object]) -> None:
        """Take a turn up to its first sleep; once it has its leases, something else is done."""
        _Sleeper(self, turn, then).resume(None)

    def run(self) -> None:
        """Go on until nothing is left to be done."""
        while self._rung or self._agenda:
            if self._rung:
                number = self._rung.pop()
                if number in self._sleeping:
                    self._sleeping.pop(number).resume({number})
                continue
            time, _, do = heapq.heappop(self._agenda)
            self._now = max(self._now, time)
            do()

    def sleep(self, sleeper: _Sleeper, wanted: Sleep) -> None:
        """Sleep until a waker or the time wakes the turn."""
        self.sleeps += 1
        (number,) = wanted.fds
        self._sleeping[number] = sleeper
        sleeper.sleep = this = self.sleeps
        if wanted.until is not None:

            def time_is_up() -> None:
                if sleeper.sleep == this and self._sleeping.pop(number, None) is not None:
                    sleeper.resume(set())

            self.at(wanted.until, time_is_up)


class _Sleeper:
    """A turn that is under way, and the number of its last sleep."""

    def __init__(self, time: VirtualTime, turn: Turn, then: Callable[[], object]) -> None:
        self._time = time
        self._turn = turn
        self._then = then
        self.sleep = 0

    def resume(self, woken: set[int] | None) -> None:
        try:
            wanted = next(self._turn) if woken is None else self._turn.send(woken)
        except StopIteration:
            self._then()
        except LeaseError as error:
            self._time.failures.append(error)
        else:
            self._time.sleep(self, wanted)


class Simulated(NamedTuple):
    """A pool that jobs come to.

    Args:
        type: Its type.
        names: Its resources.
        epoch: The wall clock at the jobs' time 0, in seconds since the epoch.
    """

    type: str
    names: tuple[str, ...]
    epoch: float = 0.0


class Run(NamedTuple):
    """The result of a simulation.

    Args:
        events: All events, as the pool's engine writes them.
        grants: For each job when it was granted, in seconds of the jobs' time; None for never.
        starts: For each job when its work started, in the same time; None for never.
        waits: How long the jobs that started waited from their arrival until then, in seconds.
        held_seconds: How long resources were held, all together.
        begin: The first arrival.
        end: When the last lease ended, or the last job gave up.
    """

    events: tuple[Event, ...]
    grants: tuple[float | None, ...]
    starts: tuple[float | None, ...]
    waits: tuple[float, ...]
    held_seconds: float
    begin: float
    end: float

    @property
    def makespan_seconds(self) -> float:
        return self.end - self.begin


def check_jobs(jobs: Sequence[Job], pool: Simulated) -> None:
    """Refuse jobs that the pool could never serve.

    Raises:
        InvalidRequest: One asks for more than there is, or for a name that isn't there.
    """
    names = frozenset(pool.names)
    for number, job in enumerate(jobs, 1):
        if job.count > len(names):
            raise InvalidRequest(
                f"job {number} asks for {job.count} resources, and the capacity is {len(names)}"
            )
        if job.name is not None and job.name not in names:
            raise InvalidRequest(
                f'job {number} asks for "{printable(job.name)}", which isn\'t in the pool; it has '
                f"{pool.names[0]} to {pool.names[-1]}"
            )


def run(
    jobs: Iterable[Job],
    pool: Simulated,
    policy: Policy,
    *,
    seed: str = "",
    done: Callable[[], object] = lambda: None,
) -> Run:
    """Simulate jobs on a pool that grants under a policy, until the last has ended.

    Args:
        jobs: In the order of their arrivals.
        pool: The pool.
        policy: How starts are spread.
        seed: Of everything random.
        done: Called as each job ends.
    """
    running = _Running(tuple(jobs), pool, policy, Random(f"{seed} {policy.text}"), done)
    try:
        return running.run()
    finally:
        running.close()


class _Running:
    """A run that is under way.

    Args:
        jobs: As in `run`, like the others.
    """

    def __init__(
        self,
        jobs: tuple[Job, ...],
        pool: Simulated,
        policy: Policy,
        chance: Random,
        done: Callable[[], object],
    ) -> None:
        self._jobs = jobs
        self._pool_type = pool.type
        self._policy = policy
        self._chance = chance
        self._done = done
        self._time = VirtualTime(epoch=pool.epoch)
        clock = self._time.clock
        self._state = MemoryState(self._time.new_waker)
        engine = LocalEngine(self._state, lost=lambda key, names: None, clock=clock)
        sides = LocalSides(self._state, lost=lambda key, names: None, clock=clock)
        sides.pools.create_pool(pool.type, pool.names, settings=policy.settings)
        self._backend = PoolBackend("local:", engine, sides, clock=clock)
        self._grants: list[float | None] = [None] * len(jobs)
        self._starts: list[float | None] = [None] * len(jobs)
        self._held_seconds = 0.0
        self._end = 0.0

    def run(self) -> Run:
        for number, job in enumerate(self._jobs):
            delay = self._up_to(self._policy.jitter_seconds)
            self._time.at(job.at + delay, partial(self._request, number, job))
        self._time.run()
        waits = [
            start - job.at for start, job in zip(self._starts, self._jobs) if start is not None
        ]
        return Run(
            events=tuple(self._backend.events.read()),
            grants=tuple(self._grants),
            starts=tuple(self._starts),
            waits=tuple(waits),
            held_seconds=self._held_seconds,
            begin=self._jobs[0].at,
            end=self._end,
        )

    def close(self) -> None:
        self._state.close()

    def _request(self, number: int, job: Job) -> None:
        handle = f"{self._pool_type}-{number + 1:06d}"
        request = Request(self._pool_type, job.count, job.name, priority=job.priority)
        claimant = Claimant(handle, f"job/{number + 1}", request)
        journal = _Journal(partial(record, self._state, claimant), self._give_up)
        patience = Patience(wait_seconds=job.wait_seconds)
        turn = self._backend.turn(claimant, journal, patience)
        self._time.begin(turn, lambda: self._grant(number, job, handle, journal.leases))

    def _grant(self, number: int, job: Job, handle: str, leases: Sequence[Lease]) -> None:
        now = self._time.clock.elapsed()
        before_start = self._up_to(self._policy.start_jitter_seconds)
        self._grants[number], self._starts[number] = now, now + before_start
        names = [lease.name for lease in leases]
        holds = [self._drawn_hold()] if self._policy.release_after_seconds else list(job.holds)
        last = len(holds) - 1
        for n, hold in enumerate(sorted(holds)):
            freed = names if not last else names[n : n + 1]
            held = before_start + hold
            self._held_seconds += held * len(freed)
            self._time.after(held, partial(self._free, handle, freed, is_last=n == last))

    def _free(self, handle: str, names: Sequence[str], *, is_last: bool) -> None:
        with self._backend.atomic():
            self._backend.release(handle, names)
        self._end = self._time.clock.elapsed()
        if is_last:
            self._done()

    def _give_up(self) -> None:
        self._end = self._time.clock.elapsed()
        self._done()

    def _drawn_hold(self) -> float:
        assert self._policy.release_after_seconds is not None
        return self._chance.uniform(*self._policy.release_after_seconds)

    def _up_to(self, seconds: float) -> float:
        return self._chance.uniform(0.0, seconds) if seconds else 0.0


class _Journal:
    """The journal of a job: keeps its leases until its turn is over.

    Args:
        enqueuing: Called before its ticket is put.
        gave_up: Called when the job has given up.
    """

    def __init__(self, enqueuing: Callable[[], None], gave_up: Callable[[], None]) -> None:
        self.enqueuing = enqueuing
        self.gave_up = gave_up
        self.leases: Sequence[Lease] = ()

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        self.leases = leases

    def to_undo(self) -> None:
        """Nothing can be left behind here."""


_NO_WAIT = Spread(0.0, 0.0, 0.0)


class Outcome(NamedTuple):
    """What came of jobs that came to a pool under a policy.

    Args:
        policy: How that is written.
        jobs: How many came.
        gave_up: How many of them got nothing.
        peak_starts: The most that started within any minute, which is less than 60 s.
        utilisation: The share of the resources' time, from the first arrival to the last end, in
            which they were held, 0 to 1.
        wait: How long jobs waited from their arrival until they started, jitter included.
        makespan_seconds: From the first arrival to the last end.
    """

    policy: str
    jobs: int
    gave_up: int
    peak_starts: int
    utilisation: float
    wait: Spread
    makespan_seconds: float


def outcome_of(run: Run, pool: Simulated, policy_text: str) -> Outcome:
    """Tell what came of a run."""
    there = len(pool.names) * run.makespan_seconds
    return Outcome(
        policy=policy_text,
        jobs=len(run.starts),
        gave_up=run.starts.count(None),
        peak_starts=max(starts_within(_started(run)), default=0),
        utilisation=min(1.0, run.held_seconds / there) if there else 0.0,
        wait=spread(run.waits) or _NO_WAIT,
        makespan_seconds=run.makespan_seconds,
    )


class PriorityWaits(NamedTuple):
    """How long the jobs of one priority waited.

    Args:
        priority: As they asked for.
        jobs: How many there were.
        wait: From their arrival until they started; None where all of them gave up.
    """

    priority: int
    jobs: int
    wait: Spread | None


def waits_by_priority(run: Run, jobs: Sequence[Job]) -> list[PriorityWaits]:
    """Tell how long jobs waited, priority by priority, the highest first.

    Args:
        run: What came of them.
        jobs: Those of the run, in its order.
    """
    waited: dict[int, list[float | None]] = {}
    for job, start in zip(jobs, run.starts):
        waited.setdefault(job.priority, []).append(None if start is None else start - job.at)
    return [
        PriorityWaits(priority, len(waits), spread([wait for wait in waits if wait is not None]))
        for priority, waits in sorted(waited.items(), reverse=True)
    ]


def picture_row(run: Run, pool: Simulated, title: str, until: float) -> PictureRow:
    """What a picture shows of a run, from the first arrival to a time of the jobs' own."""
    timeline = Timeline()
    for event in run.events:
        timeline.add(event)
    # Of a picture's starts it is the work that counts, not the grant.
    timeline.grants = array("d", sorted(pool.epoch + at for at in _started(run)))
    return PictureRow(title, timeline, Window(pool.epoch + run.begin, pool.epoch + until))


def _started(run: Run) -> list[float]:
    return [at for at in run.starts if at is not None]
