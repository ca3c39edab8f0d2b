"""What came of a run, in numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from leasectl.pools.series import PictureRow
from leasectl.pools.simulation.jobs import Job
from leasectl.pools.simulation.running import Run, Simulated
from leasectl.pools.statistics import Spread, Window, spread, starts_within
from leasectl.pools.timeline import Timeline
from leasectl.typed.tuples import NamedTuple

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
