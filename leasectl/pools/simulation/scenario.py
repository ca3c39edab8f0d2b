"""What is simulated: jobs, a pool, policies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.pools.settings import SHORTEST_PACE_SECONDS
from leasectl.pools.simulation.jobs import Arrivals, Holds, Job
from leasectl.pools.simulation.policies import NO_POLICY, Policy, with_pace
from leasectl.pools.simulation.replay import Recorded
from leasectl.pools.simulation.running import Run, Simulated
from leasectl.pools.statistics import PACE_HEADROOM
from leasectl.text.naming import next_names
from leasectl.text.wording import counted


class Scenario(NamedTuple):
    """What is tried.

    Args:
        title: The same for people.
        jobs: Who comes.
        pool: To which pool.
        seed: What all that happens at random depends on.
        recorded: What came of the same jobs in reality; None where they are made up.
        recorded_pool: In which pool that was; None where it is not known to be another.
    """

    title: str
    jobs: tuple[Job, ...]
    pool: Simulated
    seed: int
    recorded: Run | None = None
    recorded_pool: Simulated | None = None


def made_up(
    arrivals: Arrivals, holds: Holds | None, pool: Simulated, *, count: int, seed: int
) -> Scenario:
    """Return jobs with the given arrivals and holds.

    Args:
        arrivals: When they come.
        holds: How long they hold, unless the list of arrivals says so; None if all of it does.
        pool: The pool.
        count: How many resources they ask for, unless that list says so.
        seed: Of everything random.

    Raises:
        InvalidRequest: The hold of a job is missing.
    """
    drawn = None if holds is None else holds.draw(Random(f"{seed} holds"))
    chance = Random(f"{seed} holds of the list")
    jobs = []
    drawn_arrivals = arrivals.draw(Random(f"{seed} arrivals"))
    for number, each in enumerate(drawn_arrivals, 1):
        own, hold = each.hold_seconds, None if drawn is None else next(drawn)
        if isinstance(own, tuple):
            own = chance.uniform(*own)
        seconds = own if own is not None else hold
        if seconds is None:
            raise InvalidRequest(
                f'missing hold time of job {number}: give --hold, like 20m, or a column "hold" in '
                "the file of arrivals"
            )
        jobs.append(Job(each.at, (seconds,), each.count or count, each.priority, each.name))
    all_say = all(each.hold_seconds is not None for each in drawn_arrivals)
    said = "" if holds is None or all_say else f", each holds {holds.text}"
    asked = "" if count == 1 else f", for {count} at once"
    title = f"{arrivals.text}{asked}{said}"
    return Scenario(title, tuple(jobs), pool, seed)


def replayed(recorded: Recorded, names: Sequence[str], *, seed: int) -> Scenario:
    """Return jobs that came to a pool in reality, with their outcomes.

    Args:
        recorded: The pool's events.
        names: The resources that the pool has now; a job that asked for another takes any.
        seed: Of what policies do at random.
    """
    known = frozenset(names)
    jobs = tuple(
        job if job.name is None or job.name in known else job._replace(name=None)
        for job in recorded.jobs
    )
    pool = Simulated(recorded.type, tuple(names), recorded.epoch)
    title = f"{counted(len(jobs), 'job')} as recorded of {recorded.type}"
    return Scenario(title, jobs, pool, seed, _run_of(recorded))


def pool_of(pool_type: str, capacity: int) -> Simulated:
    """A pool of so many resources, named as usual."""
    return Simulated(pool_type, next_names(pool_type, capacity, ()))


def with_capacity(scenario: Scenario, capacity: int) -> Scenario:
    """The same jobs, and another pool; no job may ask for a name."""
    pool = pool_of(scenario.pool.type, capacity)._replace(epoch=scenario.pool.epoch)
    return scenario._replace(pool=pool)


def advised_policy(jobs: Sequence[Job], capacity: int) -> Policy | None:
    """The pace that spreads the grants and costs next to nothing; None where there is none."""
    hold = sum(job.longest_hold for job in jobs) / len(jobs)
    count = sum(job.count for job in jobs) / len(jobs)
    seconds = hold * count / capacity / PACE_HEADROOM
    if seconds < SHORTEST_PACE_SECONDS:
        return None
    return with_pace(NO_POLICY, float(round(seconds)) if seconds >= 10 else round(seconds, 1))


def _run_of(recorded: Recorded) -> Run:
    granted = [(job, at) for job, at in zip(recorded.jobs, recorded.granted_at) if at is not None]
    ends = [at + job.longest_hold for job, at in granted]
    gave_up = [job.at + job.wait_seconds for job in recorded.jobs if job.wait_seconds is not None]
    held = sum(sum(job.holds) * (job.count if len(job.holds) == 1 else 1) for job, _ in granted)
    return Run(
        events=recorded.events,
        grants=recorded.granted_at,
        starts=recorded.granted_at,
        waits=tuple(at - job.at for job, at in granted),
        held_seconds=held,
        begin=recorded.jobs[0].at,
        end=max([*ends, *gave_up], default=0.0),
    )


def largest_deviation(run: Run, recorded: Run) -> float | None:
    """By how much a grant's time differs from the recorded one, at most; None without grants.

    A share of the time from the first arrival to the last recorded end.
    """
    apart = [
        abs(here - there)
        for here, there in zip(run.grants, recorded.grants)
        if here is not None and there is not None
    ]
    span = recorded.makespan_seconds
    return max(apart) / span if apart and span else None
