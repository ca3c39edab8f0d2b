"""What scripts/bench measures, a row each, and when a row misses its limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One figure.

    Args:
        what: Of what.
        value: None where it couldn't be measured here.
        unit: Of the value.
        limit: What it has to keep; None for nothing.
        less_is_better: The limit is the most, else the least.
        spread: How far apart the middle half of its runs is: by no more may it miss the limit.
    """

    what: str
    value: float | None
    unit: str
    limit: float | None
    less_is_better: bool
    spread: float = 0.0

    @property
    def holds(self) -> bool:
        """Tell whether its limit is kept."""
        if self.limit is None or self.value is None:
            return True
        if self.less_is_better:
            return self.value <= self.limit + self.spread
        return self.value >= self.limit - self.spread


def row_of(
    what: str,
    runs: Sequence[float],
    unit: str,
    limit: float | None,
    *,
    less_is_better: bool = True,
) -> Row:
    """The row of some runs: their median, and how far they are apart."""
    return Row(what, statistics.median(runs), unit, limit, less_is_better, spread_of(runs))


def spread_of(runs: Sequence[float]) -> float:
    """How far apart the middle half of some runs is."""
    if len(runs) < 2:
        return 0.0
    first, _, third = statistics.quantiles(runs, n=4, method="inclusive")
    return third - first


def ratios(runs: Sequence[float], bases: Sequence[float]) -> list[float]:
    """What each run is to the one beside it."""
    return [run / base for run, base in zip(runs, bases)]
