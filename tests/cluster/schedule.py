"""Which faults happen when: a plan that a seed determines.

The members have one fault at a time, with time to recover in between. The links and the
participants have theirs meanwhile, independently, so that all combinations come up.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# How long each lasts, from least to most, in seconds; nothing for what needs no undoing.
Durations = Mapping[str, tuple[float, float]]

OF_MEMBERS: Durations = {
    "kill-member": (1, 4),
    "stop-member": (1, 5),
    "kill-leader": (1, 4),
    "stop-leader": (2, 7),
    "stop-majority": (2, 6),
    "kill-all": (0.5, 3),
    "compact": (0, 0),
}
OF_PARTICIPANTS: Durations = {
    "slow-link": (2, 6),
    "cut-link": (1, 6),
    "silent-link": (1, 6),
    "kill-participant": (0, 0),
    "revoke-lease": (0, 0),
}
_RECOVERY = (2.0, 5.0)
_BETWEEN = (0.3, 1.5)


class Planned(NamedTuple):
    """A fault to come.

    Args:
        at: When, in seconds from the start.
        fault: Which, of `OF_MEMBERS` and `OF_PARTICIPANTS`.
        lasts: For how many seconds.
        draw: From 0 to 1; decides whom it hits.
    """

    at: float
    fault: str
    lasts: float
    draw: float


def plan(seed: int, seconds: float) -> list[Planned]:
    """All faults of a run that are over before its end, in the order of their times."""
    rng = random.Random(seed)
    faults = [
        *_one_after_the_other(rng, OF_MEMBERS, seconds),
        *_side_by_side(rng, OF_PARTICIPANTS, seconds),
    ]
    return sorted(each for each in faults if each.at + each.lasts <= seconds)


def _one_after_the_other(rng: random.Random, faults: Durations, seconds: float) -> list[Planned]:
    found: list[Planned] = []
    now = rng.uniform(*_RECOVERY)
    for fault in _shuffled(rng, faults):
        if now > seconds:
            return found
        lasts = rng.uniform(*faults[fault])
        found.append(Planned(now, fault, lasts, rng.random()))
        now += lasts + (rng.uniform(*_RECOVERY) if lasts else 0.5)
    raise AssertionError("unreachable")


def _side_by_side(rng: random.Random, faults: Durations, seconds: float) -> list[Planned]:
    found: list[Planned] = []
    now = 0.0
    for fault in _shuffled(rng, faults):
        now += rng.uniform(*_BETWEEN)
        if now > seconds:
            return found
        found.append(Planned(now, fault, rng.uniform(*faults[fault]), rng.random()))
    raise AssertionError("unreachable")


def _shuffled(rng: random.Random, faults: Durations) -> Iterator[str]:
    """All of them in random order, then all of them again: none is left out for long."""
    return itertools.chain.from_iterable(
        rng.sample(sorted(faults), len(faults)) for _ in itertools.count()
    )
