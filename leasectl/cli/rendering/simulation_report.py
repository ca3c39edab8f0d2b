"""What `simulate` prints."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from time import monotonic
from typing import Any

from leasectl.cli.rendering.charts import look_of_pictures, picture, width_of_pictures
from leasectl.cli.rendering.status_columns import look_of_stdout
from leasectl.cli.rendering.table import (
    BOLD,
    Column,
    number,
    obeys_escapes,
    painted,
    table,
    yellow_if_any,
)
from leasectl.cli.rendering.waiting import draw
from leasectl.errors import Interrupted
from leasectl.pools.simulation.policies import Policy
from leasectl.pools.simulation.running import (
    Outcome,
    PriorityWaits,
    Run,
    outcome_of,
    picture_row,
    waits_by_priority,
)
from leasectl.pools.simulation.scenario import Scenario, largest_deviation
from leasectl.pools.statistics import PictureRow, Spread, encode_series, series_of
from leasectl.text.durations import format_seconds
from leasectl.text.wording import counted, printable, shorten

_LONG_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_JOBS_BETWEEN = 50  # looking at the clock takes time, too


class SimulateProgress:
    """A line that says how many jobs have ended; gone in the end.

    Args:
        jobs: How many there are in a run.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._done = 0
        self._what = ""
        self._is_live = obeys_escapes(2)
        self._due = monotonic() + _LONG_SECONDS
        self._is_shown = False

    @contextmanager
    def shown(self) -> Iterator[SimulateProgress]:
        """Show the line inside, where it is due."""
        try:
            yield self
        except KeyboardInterrupt:
            raise Interrupted(signal.SIGINT) from None  # of which click says nothing
        finally:
            if self._is_shown:
                self._write("")

    def begin(self, what: str) -> Callable[[], object]:
        """A run begins; what is returned is to be called as each of its jobs ends."""
        self._what, self._done = what, 0
        return self._job_done

    def _job_done(self) -> None:
        self._done += 1
        if self._is_live and not self._done % _JOBS_BETWEEN:
            now = monotonic()
            if now >= self._due:
                self._due = now + _EVERY_SECONDS
                share = self._done / self._jobs
                self._write(f"{printable(self._what, longest=40)}: {share:.0%} of the jobs")

    def _write(self, text: str) -> None:
        self._is_shown = bool(text)
        draw(text)


# The first row of a replay, for which nothing was tried.
_RECORDED = "as recorded"
_TITLES = ("POLICY", "PEAK/MIN", "UTILISATION", "WAIT P50", "P95", "MAX", "MAKESPAN")
_PRIORITY_TITLES = ("POLICY", "PRIORITY", "JOBS", "WAIT P50", "P95", "MAX")
_GAVE_UP = "GAVE UP"


class Shown:
    """What is shown of some runs of one scenario.

    Args:
        scenario: What was tried; what was recorded of it comes first.
        runs: Under which policies, and what came of it.
        checked: Of these, the one whose grants should come when they were recorded.
    """

    def __init__(
        self,
        scenario: Scenario,
        runs: Sequence[tuple[Policy, Run]],
        *,
        checked: Policy | None = None,
    ) -> None:
        self._scenario = scenario
        self._checked = None if checked is None else checked.text
        self._deviations = [
            None if scenario.recorded is None else largest_deviation(run, scenario.recorded)
            for _, run in runs
        ]
        self._runs = [(policy.text, run) for policy, run in runs]
        if scenario.recorded is not None:
            self._runs.insert(0, (_RECORDED, scenario.recorded))
            self._deviations.insert(0, None)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """What came of each, in numbers."""
        pools = [self._scenario.pool] * len(self._runs)
        if self._scenario.recorded_pool is not None:
            pools[0] = self._scenario.recorded_pool
        return [outcome_of(run, pool, text) for (text, run), pool in zip(self._runs, pools)]

    @cached_property
    def priorities(self) -> list[list[PriorityWaits]]:
        """How long the jobs of each priority waited; nothing where all have the same."""
        jobs = self._scenario.jobs
        if len({job.priority for job in jobs}) < 2:
            return [[] for _ in self._runs]
        return [waits_by_priority(run, jobs) for _, run in self._runs]

    @cached_property
    def picture_rows(self) -> list[PictureRow]:
        """Each over time, all of the same stretch of time."""
        until = max(run.end for _, run in self._runs)
        pool = self._scenario.pool
        return [picture_row(run, pool, text, until) for text, run in self._runs]

    def text(self, *, with_picture: bool) -> str:
        """A table, and a picture below it."""
        look, width = look_of_stdout(), width_of_pictures()
        said = f"{self._scenario.title}; capacity {len(self._scenario.pool.names)}"
        heading = shorten(said, look.room, cut="end")
        parts = [
            painted(heading, BOLD if look.colour else None) + "\n",
            self._table(),
            *self._apart,
            *([f"\n{self._priorities_table()}"] if any(self.priorities) else []),
        ]
        if with_picture:
            drawn = picture(
                self.picture_rows,
                width=width,
                look=look_of_pictures(),
                elapsed=True,
                same_scale=True,
            )
            parts.append(f"\n{drawn}")
        return "".join(parts)

    def encoded(self) -> dict[str, Any]:
        """The same as JSON: durations in seconds, shares of 1."""
        scenario = self._scenario
        policies = [
            {
                **_encode_outcome(outcome),
                **_encode_priorities(waits),
                "largest_deviation": None if deviation is None else round(deviation, 6),
                "series": self._encoded_series(row),
            }
            for outcome, waits, deviation, row in zip(
                self.outcomes, self.priorities, self._deviations, self.picture_rows
            )
        ]
        return {
            "title": scenario.title,
            "capacity": len(scenario.pool.names),
            "jobs": len(scenario.jobs),
            "seed": scenario.seed,
            "policies": policies,
        }

    def _encoded_series(self, row: PictureRow) -> dict[str, Any]:
        encoded = encode_series(series_of(row.timeline, row.window))
        if self._scenario.recorded is None:  # which has dates
            del encoded["since"], encoded["until"]
        return encoded

    @property
    def _apart(self) -> list[str]:
        """How far grants are from the recorded ones, under the policy that these came by."""
        recorded = self._scenario.recorded
        return [
            f"policy {printable(text)}: simulated grants differ from the recorded ones by at most "
            f"{format_seconds(deviation * recorded.makespan_seconds)} ({deviation:.1%} of the "
            f"makespan, {format_seconds(recorded.makespan_seconds)})"
            f"{_granted_in_one(run, recorded)}\n"
            for (text, run), deviation in zip(self._runs, self._deviations)
            if recorded is not None and deviation is not None and text == self._checked
        ]

    def _table(self) -> str:
        look = look_of_stdout()
        some_gave_up = any(each.gave_up for each in self.outcomes)
        columns = _columns(_TITLES)
        if some_gave_up:
            columns.append(number(_GAVE_UP, colour=yellow_if_any))
        rows = [
            [
                printable(each.policy, longest=200),
                str(each.peak_starts),
                f"{each.utilisation:.0%}",
                *map(format_seconds, each.wait),
                format_seconds(each.makespan_seconds),
                *([str(each.gave_up)] if some_gave_up else []),
            ]
            for each in self.outcomes
        ]
        return table(columns, rows, look.room, colour=look.colour).text

    def _priorities_table(self) -> str:
        look = look_of_stdout()
        columns = _columns(_PRIORITY_TITLES)
        rows = [
            [
                printable(text, longest=200) if n == 0 else "",
                str(each.priority),
                str(each.jobs),
                *(map(format_seconds, each.wait) if each.wait else ("-", "-", "-")),
            ]
            for (text, _), waits in zip(self._runs, self.priorities)
            for n, each in enumerate(waits)
        ]
        return table(columns, rows, look.room, colour=look.colour).text


def _columns(titles: Sequence[str]) -> list[Column]:
    policy, *others = titles
    return [Column(policy, shrinks=1, at_least=12), *map(number, others)]


def _encode_priorities(waits: Sequence[PriorityWaits]) -> dict[str, Any]:
    if not waits:
        return {}
    return {
        "priorities": [
            {
                "priority": each.priority,
                "jobs": each.jobs,
                "wait_seconds": None if each.wait is None else _encode_wait(each.wait),
            }
            for each in waits
        ]
    }


def _encode_wait(wait: Spread) -> dict[str, float]:
    return {key: round(value, 3) for key, value in wait._asdict().items()}


def _encode_outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "jobs": outcome.jobs,
        "gave_up": outcome.gave_up,
        "peak_starts_within_a_minute": outcome.peak_starts,
        "utilisation": round(outcome.utilisation, 6),
        "wait_seconds": _encode_wait(outcome.wait),
        "makespan_seconds": round(outcome.makespan_seconds, 3),
    }


def _granted_in_one(run: Run, recorded: Run) -> str:
    """How many got something in the one and nothing in the other, which is no matter of time."""
    pairs = zip(run.grants, recorded.grants)
    apart = sum((here is None) != (there is None) for here, there in pairs)
    if not apart:
        return ""
    return f"; {counted(apart, 'job')} got a grant only in the simulation, or only in the record"
