"""One run: jobs that come to a pool under a policy, in virtual time.

What grants is the pool algorithm on the memory engine, the code that grants elsewhere; nothing here
knows whose turn it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.memory.engine import MemoryEngine
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.sides import MemorySides
from leasectl.engines.memory.store import MemoryStore
from leasectl.errors import InvalidRequest
from leasectl.model import Claimant, Lease, Request
from leasectl.pools.simulation.jobs import Job
from leasectl.pools.simulation.policies import Policy
from leasectl.pools.simulation.virtual_time import VirtualTime
from leasectl.state.event import Event
from leasectl.text.printable import printable
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple


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
    """What came of some jobs.

    Args:
        events: All that happened, as the pool's engine tells it.
        grants: For each job when it was granted, in seconds of the jobs' time; None for never.
        starts: For each job when its work started, likewise.
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
    """Have jobs come to a pool that grants under a policy, until the last has ended.

    Args:
        jobs: Who comes, in the order of their arrivals.
        pool: To which pool.
        policy: What is done about many starts at once.
        seed: What all that happens at random depends on.
        done: Called as each job ends.
    """
    running = _Running(tuple(jobs), pool, policy, Random(f"{seed} {policy.text}"), done)
    return running.run()


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
        store = MemoryStore(clock=self._time.clock, lost=lambda key, names: None)
        pools = MemoryPools(store)
        pools.create_pool(pool.type, pool.names, settings=policy.settings)
        self._engine = MemoryEngine(store, new_waker=self._time.new_waker)
        self._backend = PoolBackend(
            "memory:",
            self._engine,
            MemorySides(store),
            clock=self._time.clock,
        )
        self._events = store.events
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
            events=tuple(self._events.read()),
            grants=tuple(self._grants),
            starts=tuple(self._starts),
            waits=tuple(waits),
            held_seconds=self._held_seconds,
            begin=self._jobs[0].at,
            end=self._end,
        )

    def _request(self, number: int, job: Job) -> None:
        handle = f"{self._pool_type}-{number + 1:06d}"
        request = Request(self._pool_type, job.count, job.name, priority=job.priority)
        journal = _GrantJournal(partial(self._grant, number, job, handle), self._give_up)
        patience = Patience(wait_seconds=job.wait_seconds)
        turn = self._backend.turn(Claimant(handle, f"job/{number + 1}", request), journal, patience)
        self._time.begin(turn, journal.pass_on)

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


class _GrantJournal:
    """The journal of a job: keeps its leases until its turn is over.

    Args:
        granted: Called then with them.
        gave_up: Called when the job has given up.
    """

    def __init__(
        self, granted: Callable[[Sequence[Lease]], None], gave_up: Callable[[], None]
    ) -> None:
        self._granted = granted
        self._gave_up = gave_up
        self._leases: Sequence[Lease] = ()

    def enqueuing(self) -> None:
        """Nothing has to be recorded."""

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        self._leases = leases

    def pass_on(self) -> None:
        """The turn is over, with leases."""
        self._granted(self._leases)

    def gave_up(self) -> None:
        self._gave_up()

    def to_undo(self) -> None:
        """Nothing can be left behind here."""
