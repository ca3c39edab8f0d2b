"""Find the smallest pace or capacity with a wanted outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.pools.simulation.policies import Policy, with_pace
from leasectl.pools.simulation.running import Outcome, Run, outcome_of
from leasectl.pools.simulation.scenario import Scenario, with_capacity
from leasectl.pools.statistics import PEAK_SECONDS
from leasectl.text.naming import MOST_AT_ONCE

Sought = Literal["pace", "capacity"]
Attempt = Callable[[Scenario, Policy], Run]

# Paces are tried in tenths of a second up to ten seconds, then in seconds up to an hour.
_TENTHS = 100
_LONGEST_PACE_SECONDS = 3600


class Limits(NamedTuple):
    """What an outcome may be at most; None for anything. Times are in seconds."""

    peak_starts: int | None = None
    wait_p50: float | None = None
    wait_p95: float | None = None
    wait_max: float | None = None
    makespan: float | None = None

    def are_kept(self, outcome: Outcome) -> bool:
        """Tell whether an outcome is as wanted."""
        wait = outcome.wait
        values = (outcome.peak_starts, wait.p50, wait.p95, wait.max, outcome.makespan_seconds)
        return all(limit is None or value <= limit for value, limit in zip(values, self))

    def keep_peak(self, outcome: Outcome) -> bool:
        """Tell whether no more start within a minute than may."""
        return self.peak_starts is None or outcome.peak_starts <= self.peak_starts


NO_LIMITS = Limits()


class Tried(NamedTuple):
    """A run of a search: with which value, and what came of it.

    Args:
        value: In seconds, or in resources.
        scenario: What was tried.
        policy: Under which policy.
        run: What came of it.
        outcome: The same, in numbers.
        does_it: Whether that keeps the limits.
    """

    value: float
    scenario: Scenario
    policy: Policy
    run: Run
    outcome: Outcome
    does_it: bool = True


def search(
    sought: Sought, limits: Limits, scenario: Scenario, policy: Policy, attempt: Attempt
) -> Tried:
    """Find the smallest pace or capacity that keeps the limits, by bisection over runs.

    It relies on this: the longer the pace, the lower the peak; the larger the capacity, the sooner
    everybody starts, and the whole ends. For what the value makes worse instead, the smallest that
    does the rest is the best there is.

    Args:
        sought: What is varied.
        limits: What the outcome may be at most.
        scenario: Who comes.
        policy: Under which policy; for a pace, this with that pace.
        attempt: Runs it.

    Returns:
        The run with the smallest value; when none does it, the one that comes nearest to it: with
        the smallest value that keeps those limits that a larger one helps to keep, else the
        largest.

    Raises:
        InvalidRequest: The capacity can't be varied, as jobs ask for names.
    """
    if sought == "capacity" and any(job.name is not None for job in scenario.jobs):
        raise InvalidRequest("--find capacity: some jobs ask for a resource by its name")

    def tried(value: int) -> Tried:
        if sought == "pace":
            here = scenario, with_pace(policy, _pace_seconds(value))
        else:
            here = with_capacity(scenario, value), policy
        run = attempt(*here)
        shown = _pace_seconds(value) if sought == "pace" else value
        return Tried(shown, *here, run, outcome_of(run, here[0].pool, here[1].text))

    least, most = _range(sought, scenario)
    return _bisect(tried, _improved(sought, limits), limits, least, most)


def paced_for_peak(policy: Policy, peak_starts: int) -> Policy:
    """The same with the shortest pace under which no more are granted within a minute."""
    tenths = math.ceil(10 * PEAK_SECONDS / peak_starts - 1e-9)
    one_at_a_time = policy._replace(settings=policy.settings._replace(burst=1))
    return with_pace(one_at_a_time, tenths / 10)


def _bisect(
    tried: Callable[[int], Tried], improved: Limits, limits: Limits, least: int, most: int
) -> Tried:
    best = tried(most)
    if not improved.are_kept(best.outcome):
        return best._replace(does_it=False)
    low, high = least, most  # of which the latter does it
    while low < high:
        middle = (low + high) // 2
        here = tried(middle)
        if improved.are_kept(here.outcome):
            high, best = middle, here
        else:
            low = middle + 1
    return best._replace(does_it=limits.are_kept(best.outcome))


def _range(sought: Sought, scenario: Scenario) -> tuple[int, int]:
    """From what to what values are tried."""
    if sought == "pace":
        return 0, _TENTHS + _LONGEST_PACE_SECONDS - _TENTHS // 10
    counts = [job.count for job in scenario.jobs]
    return max(counts), min(sum(counts), MOST_AT_ONCE)


def _pace_seconds(value: int) -> float:
    return value / 10 if value <= _TENTHS else float(value - _TENTHS + _TENTHS // 10)


def _improved(sought: Sought, limits: Limits) -> Limits:
    """The limits that a larger value makes easier to keep."""
    if sought == "pace":
        return Limits(peak_starts=limits.peak_starts)
    return limits._replace(peak_starts=None)
