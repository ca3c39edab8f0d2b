"""Who comes first: priorities, and what waiting adds to them."""

from __future__ import annotations

import pytest

from leasectl.engines.rules.turns import effective_priority, next_rise


@pytest.mark.parametrize(
    ("priority", "waited", "aging", "effective"),
    [(0, 1e6, 0, 0), (-5, 59.9, 60, -5), (-5, 60, 60, -4), (3, 600, 60, 13), (1, -5, 60, 1)],
)
def test_each_aging_period_counts_as_one_more(
    priority: int, waited: float, aging: float, effective: int
) -> None:
    assert effective_priority(priority, waited, aging) == effective


@pytest.mark.parametrize(("waited", "aging", "rise"), [(0, 0, None), (0, 60, 60), (75, 60, 45)])
def test_the_next_rise_is_told(waited: float, aging: float, rise: float | None) -> None:
    assert next_rise(waited, aging) == rise
    if rise is not None:
        before = effective_priority(0, waited, aging)
        assert effective_priority(0, waited + rise, aging) == before + 1
