"""``leasectl simulate``: what would happen to jobs that come to a pool, policy by policy."""

from __future__ import annotations

import click

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.described import OUTPUT, POLICIES, SIMULATED, SOUGHT, option
from leasectl.cli.shown.output import show, show_json
from leasectl.cli.shown.plot import PlotFile, plot, plot_option
from leasectl.cli.shown.simulate_progress import SimulateProgress
from leasectl.cli.shown.simulate_shown import Shown
from leasectl.cli.simulate_subject import Wanted, subject_of
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
from leasectl.text.durations import parse_duration
from leasectl.text.naming import MOST_AT_ONCE
from leasectl.text.printable import printable
from leasectl.typed.hints import Any

EXAMPLE = """\b
Examples:
  leasectl simulate --capacity 50 --hold 20m --arrivals 500
  leasectl simulate --capacity 50 --hold 20m+-20% --arrivals 20x50/15m \\
    --policy none --policy jitter=15m --policy pace=20s
  leasectl simulate --hold 20m --arrivals 2/m:8h --find capacity --wait-p95 5m
"""


@new_command(epilog=EXAMPLE, options_metavar="[TYPE] [OPTIONS]")
@options.one_type(
    "A pool of the backend: its capacity, its settings; it may also stand without -t.",
    group=SIMULATED,
)
@option(
    "--replay",
    "replay",
    group=SIMULATED,
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="The jobs that the pool's events tell of: when they came, for how much, with which "
    "priority, and how long they held; or the events in a file, as leasectl events --json prints "
    "them, -: stdin.",
)
@option(
    "--capacity",
    group=SIMULATED,
    type=click.IntRange(1, MOST_AT_ONCE),
    metavar="N",
    help="How many resources there are. Default: as the pool has.",
)
@option(
    "--arrivals",
    group=SIMULATED,
    metavar="ARRIVALS",
    help="500: so many jobs at once; 20x50/15m: 20 bursts of 50, one every 15 minutes; 2/m:8h: two "
    "a minute on average, at random times (Poisson), for 8 hours; else a file, a job a line, whose "
    "first names its columns, with commas, semicolons or tabs between them: at (a time since the "
    "beginning like 90s or 1h30m, or in all lines a date like 2026-11-21T08:00), and if wanted "
    "hold (as --hold has it, no file), count, priority, name (of the one resource that will do); "
    "-: stdin.",
)
@option(
    "--hold",
    group=SIMULATED,
    metavar="HOLD",
    help="How long a job holds. 20m; 16m-24m or 20m+-20%: any time out of that range; else a file, "
    "a time a line, taken in turn.",
)
@option(
    "-c",
    "--count",
    group=SIMULATED,
    type=click.IntRange(1),
    metavar="N",
    help="For how many resources each job asks. Default: 1.",
)
@option(
    "--policy",
    "policies",
    group=POLICIES,
    multiple=True,
    metavar="POLICY",
    help="none; pace=20s and burst=2, as leasectl pool set has them; jitter=15m: a random time of "
    "up to this before the request; start-jitter=5m: the same after the grant, lease in hand; "
    "release-after=18m-22m: holds are drawn from this range instead; aging=30m. Several at once: "
    "with commas. Given more than once: side by side. Default: none, and the pace that is advised, "
    "which is hold / capacity / 1.2; of a pool, its own.",
)
@option(
    "--find",
    "sought",
    group=SOUGHT,
    type=click.Choice(["pace", "capacity"]),
    help="Search for the smallest that keeps the limits below; exit with 1 if none does.",
)
@option(
    "--peak",
    group=SOUGHT,
    type=click.IntRange(1),
    metavar="N",
    help="At most so many starts within a minute.",
)
@option(
    "--wait-p50",
    group=SOUGHT,
    type=parse_duration,
    metavar="D",
    help="Half of the jobs wait no longer than this.",
)
@option(
    "--wait-p95",
    group=SOUGHT,
    type=parse_duration,
    metavar="D",
    help="95 of 100 wait no longer than this.",
)
@option("--wait-max", group=SOUGHT, type=parse_duration, metavar="D", help="Nobody waits longer.")
@option(
    "--makespan",
    group=SOUGHT,
    type=parse_duration,
    metavar="D",
    help="The last ends this long after the first arrival, or earlier.",
)
@option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    metavar="N",
    help="Of all that is random: the same seed, the same result. Default: 1.",
)
@option("--no-picture", is_flag=True, group=OUTPUT, help="Only the table.")
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
    """Show what would happen to jobs that come to a pool.

    Under one policy or another, side by side. Nothing is leased: the code that grants leases runs
    in a virtual time. PEAK/MIN is the most
    jobs that start within any minute, UTILISATION the share of the resources' time that is held,
    WAIT the time from a job's arrival until it starts, jitter included, MAKESPAN the time from the
    first arrival to the last end. With --replay there is also what was recorded. Where jobs have
    different priorities, a second table has the waits of each. Events don't tell what a job asked
    for with --where: it is replayed as if any resource would have done.
    """
    limits = Limits(peak, wait_p50, wait_p95, wait_max, makespan)
    _check_search(sought, limits)
    subject = subject_of(Wanted(**given), sought)
    scenario = subject.scenario
    with SimulateProgress(len(scenario.jobs)) as progress:

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
        nearest = f"no {sought} keeps these limits{under}; {value} comes nearest, as shown"
        raise LeaseError(nearest + _hint_of_pace(sought, limits, found))
    if not as_json:
        show(f"the smallest {sought} that keeps the limits{under}: {value}\n")


def _hint_of_pace(sought: Sought, limits: Limits, found: Tried) -> str:
    if sought == "pace" or found.policy.start_jitter_seconds or limits.keep_peak(found.outcome):
        return ""
    assert limits.peak_starts is not None
    pace = paced_for_peak(found.policy, limits.peak_starts)
    return f"; a pace keeps the peak: try --policy {printable(pace.text)}"


def _check_search(sought: Sought | None, limits: Limits) -> None:
    if sought is None and limits != NO_LIMITS:
        raise InvalidRequest("a limit like --peak is for a search: add --find pace, or capacity")
    if sought is not None and limits == NO_LIMITS:
        raise InvalidRequest(f"--find {sought}: say for what, like --peak 3 or --wait-p95 60m")
