"""``leasectl simulate``: what would happen to jobs that come to a pool, policy by policy."""

from __future__ import annotations

from typing import Any

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.described import Between, option
from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.plot import PlotFile, plot, plot_option
from leasectl.cli.rendering.simulation_report import Shown, SimulateProgress
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.pools.simulation.policies import Policy, duration_text
from leasectl.pools.simulation.running import Run, check_jobs, run
from leasectl.pools.simulation.scenario import Scenario
from leasectl.pools.simulation.search import (
    NO_LIMITS,
    Limits,
    Sought,
    Tried,
    paced_for_peak,
    search,
)
from leasectl.pools.simulation.subject import Wanted, subject_of
from leasectl.text.naming import MOST_AT_ONCE
from leasectl.text.wording import printable


@new_command(options_metavar="[POOL] [OPTIONS]")
@options.one_type(
    "Take capacity and settings from this pool; -t itself may be omitted.",
    group="Load",
)
@option(
    "--replay [FILE]",
    "Replay the jobs of the pool's events: their arrivals, counts, priorities and hold "
    "times. FILE: events as leasectl events --json prints them; -: stdin.",
    group="Load",
    is_flag=False,
    flag_value="",
)
@option(
    "--capacity N",
    "The number of resources. Default: that of the pool.",
    type=Between(1, MOST_AT_ONCE),
    group="Load",
)
@option(
    "--arrivals ARRIVALS",
    "500: 500 jobs at once; 20x50/15m: 20 bursts of 50 jobs, one every 15 minutes; 2/m:8h: "
    "two per minute on average, at random times (Poisson), for 8 hours; otherwise a file of jobs, "
    "one per line, or - for stdin. Its first line names the columns, separated by commas, "
    "semicolons or tabs: at (time since the start like 90s, or a date like 2026-11-21T08:00) and "
    "optionally hold (as in --hold), count, priority, name (the only resource to use).",
    group="Load",
)
@option(
    "--hold HOLD",
    "The hold time of a job: 20m; 16m-24m or 20m+-20%: random in that range; otherwise a "
    "file with one time per line, used in turn.",
    group="Load",
)
@option("-c, --count N", "Resources per job. Default: 1.", type=Between(1), group="Load")
@option(
    "--policy POLICY",
    "One or more of these, with commas between them: none; pace=20s, burst=2, aging=30m, as "
    "in leasectl pool set; jitter=15m and start-jitter=5m, as in acquire; release-after=18m-22m, "
    "which replaces the hold time. Repeat the option to compare policies. Default: the pool's own "
    "policy; without a pool, two policies: none, and a pace of hold / capacity / 1.2.",
    to="policies",
    group="Policies",
    multiple=True,
)
@option(
    "--find [pace|capacity]",
    "Find the smallest pace or capacity that meets the limits below; exit with 1 if none does.",
    to="sought",
    group="Search",
)
@option("--peak N", "Limit: starts within any minute.", type=Between(1), group="Search")
@option("--wait-p50 D", "Limit: median wait.", group="Search")
@option("--wait-p95 D", "Limit: 95th percentile of the waits.", group="Search")
@option("--wait-max D", "Limit: longest wait.", group="Search")
@option("--makespan D", "Limit: time from the first arrival to the last end.", group="Search")
@option(
    "--seed N",
    "Seed of the random numbers; the same seed gives the same result. Default: 1.",
    type=Between(0),
    default=1,
)
@option("--no-picture", "Print the table only.", group="Output")
@plot_option
@options.json_output
@options.backend
def command(
    *,
    sought: Sought | None,
    peak: int | None,
    wait_p50: float | None,
    wait_p95: float | None,
    wait_max: float | None,
    makespan: float | None,
    no_picture: bool,
    plot_file: PlotFile | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Simulate jobs on a pool and show their waits and starts.

    Compares policies side by side. Nothing is leased: the code that grants leases runs in virtual
    time.

    \b
    PEAK/MIN     most starts within any minute
    UTILISATION  share of the resources' time in which they are held
    WAIT         time from a job's arrival to its start, jitter included
    MAKESPAN     time from the first arrival to the last end

    With --replay, the recorded numbers are shown as well. Jobs with different priorities get a
    table of waits by priority. Events don't record --where, so a replayed job takes any resource.

    \b
    Examples:
      leasectl simulate --capacity 50 --hold 20m --arrivals 500
      leasectl simulate --capacity 50 --hold 20m+-20% --arrivals 20x50/15m \\
        --policy none --policy jitter=15m --policy pace=20s
      leasectl simulate --hold 20m --arrivals 1/m:3h --find capacity --wait-p95 5m
    """
    limits = Limits(peak, wait_p50, wait_p95, wait_max, makespan)
    _check_search(sought, limits)
    subject = subject_of(Wanted(**given, warn=note), sought)
    scenario = subject.scenario
    with SimulateProgress(len(scenario.jobs)).shown() as progress:

        def attempt(scenario: Scenario, policy: Policy) -> Run:
            check_jobs(scenario.jobs, scenario.pool)
            done = progress.begin(policy.text)
            seed = str(scenario.seed)
            return run(scenario.jobs, scenario.pool, policy, seed=seed, done=done)

        found = None
        if sought is None:
            runs = [(policy, attempt(scenario, policy)) for policy in subject.policies]
        else:
            found = search(sought, limits, scenario, subject.policies[0], attempt)
            scenario, runs = found.scenario, [(found.policy, found.run)]
    shown = Shown(scenario, runs, checked=subject.checked)
    if as_json:
        show_json({**shown.encoded(), **_encoded_find(sought, found)})
    else:
        show(shown.text(with_picture=not no_picture))
    if plot_file is not None:
        plot(shown.picture_rows, plot_file, title=scenario.title, elapsed=True, same_scale=True)
    if found is not None and sought is not None:
        _say_found(sought, limits, found, as_json=as_json)


def _encoded_find(sought: Sought | None, found: Tried | None) -> dict[str, object]:
    if found is None:
        return {}
    return {"sought": sought, "found": found.value if found.does_it else None}


def _say_found(sought: Sought, limits: Limits, found: Tried, *, as_json: bool) -> None:
    """Say which value it is, below what came of it.

    Raises:
        LeaseError: None does it.
    """
    value = duration_text(found.value) if sought == "pace" else str(int(found.value))
    under = f" under the policy {printable(found.policy.text)}" if sought == "capacity" else ""
    if not found.does_it:
        nearest = f"no {sought} meets these limits{under}; {value} comes nearest, as shown"
        raise LeaseError(nearest + _hint_of_pace(sought, limits, found))
    if not as_json:
        show(f"the smallest {sought} that meets the limits{under}: {value}\n")


def _hint_of_pace(sought: Sought, limits: Limits, found: Tried) -> str:
    if sought == "pace" or found.policy.start_jitter_seconds or limits.keep_peak(found.outcome):
        return ""
    assert limits.peak_starts is not None
    pace = paced_for_peak(found.policy, limits.peak_starts)
    return f"; a pace can meet --peak: try --policy {printable(pace.text)}"


def _check_search(sought: Sought | None, limits: Limits) -> None:
    if sought is None and limits != NO_LIMITS:
        raise InvalidRequest("a limit like --peak is for a search: add --find pace, or capacity")
    if sought is not None and limits == NO_LIMITS:
        raise InvalidRequest(f"--find {sought} needs a limit, like --peak 3 or --wait-p95 60m")
