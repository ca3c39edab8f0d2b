"""What came of simulated runs: a line a policy for people, and JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasectl.cli.status_table import Look
from leasectl.cli.table import YELLOW, Colour, Column, table
from leasectl.pools.simulation.outcome import Outcome
from leasectl.text.durations import format_seconds
from leasectl.text.printable import printable


def outcomes_table(outcomes: Sequence[Outcome], look: Look) -> str:
    """One line a policy."""
    some_gave_up = any(each.gave_up for each in outcomes)
    columns = [
        Column("POLICY", shrinks=1, at_least=12),
        Column("PEAK/MIN", right=True),
        Column("UTILISATION", right=True),
        *(Column(title, right=True) for title in ("WAIT P50", "P95", "MAX")),
        Column("MAKESPAN", right=True),
    ]
    if some_gave_up:
        columns.append(Column("GAVE UP", right=True, colour=_marked))
    rows = [
        [
            printable(each.policy, longest=200),
            str(each.peak_starts),
            f"{each.utilisation:.0%}",
            *map(format_seconds, each.wait),
            format_seconds(each.makespan_seconds),
            *([str(each.gave_up)] if some_gave_up else []),
        ]
        for each in outcomes
    ]
    return table(columns, rows, look.room, colour=look.colour).text


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """What came of a policy as JSON has it: durations in seconds, shares of 1."""
    return {
        "policy": outcome.policy,
        "jobs": outcome.jobs,
        "gave_up": outcome.gave_up,
        "peak_starts_within_a_minute": outcome.peak_starts,
        "utilisation": round(outcome.utilisation, 6),
        "wait_seconds": {key: round(value, 3) for key, value in outcome.wait._asdict().items()},
        "makespan_seconds": round(outcome.makespan_seconds, 3),
    }


def _marked(text: str) -> Colour | None:
    return None if text == "0" else YELLOW
