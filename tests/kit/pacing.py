"""Judge a pool's grants by its events: pace, order and the position of a waiter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from leasectl.engines.facts import Pool, Standing
from leasectl.engines.rules.turns import effective_priority
from leasectl.state.event import Event

# A loaded machine may suspend a process for so long between a decision and the note of its time.
STALL_SECONDS = 0.25


def too_fast(
    times: Sequence[float], *, pace: float, burst: int = 1, slack: float = 0.02
) -> list[str]:
    """List stretches of time with more grants than ``burst + T / pace``.

    Args:
        times: Of the grants, in seconds of one clock, in any order.
        pace: Of the pool, in seconds.
        burst: Of the pool.
        slack: How much later than it was decided a grant may be dated, in seconds.
    """
    ordered = sorted(times)
    return [
        f"{last - first + 1} grants within {ordered[last] - ordered[first]:.3f}s"
        for first in range(len(ordered))
        for last in range(first + burst, len(ordered))
        if ordered[last] - ordered[first] < (last - first + 1 - burst) * pace - slack
    ]


def middle_gap(times: Sequence[float]) -> float:
    """Say what there mostly is between a grant and the next, in seconds.

    A pool that is slower than its pace has all of them longer; a machine that has no time now and
    then, some.

    Args:
        times: Of the grants, in seconds of one clock, in any order.
    """
    ordered = sorted(times)
    return median(later - earlier for earlier, later in zip(ordered, ordered[1:]))


def too_late(events: Iterable[Event], *, pace: float, slack: float) -> list[str]:
    """Say which grants came later than the pace and the queue called for.

    It is for pools whose holders give back sooner than the pace uses up what there is.

    Args:
        events: Of one pool, in their order, from the first on.
        pace: Of the pool, in seconds; its burst is 1.
        slack: How much later, in seconds.
    """
    queued: dict[int, float] = {}
    due = float("-inf")
    late = []
    for event in events:
        if event.kind == "queued":
            queued[event.ticket] = event.time
        elif event.kind == "granted":
            after = event.time - max(due, queued[event.ticket])
            if after > slack:
                late.append(f"ticket {event.ticket} was granted {after:.3f}s too late")
            due = event.time + pace
    return late


_NEVER = float("inf")


def unfair(
    events: Iterable[Event],
    *,
    aging: float = 0.0,
    killed: Mapping[str, float] | None = None,
    slack: float = 0.0,
) -> list[str]:
    """List grants that passed a better waiter.

    Args:
        events: Of one pool, in their order, from the first on.
        aging: Of the pool, in seconds.
        killed: Handles whose waiters died, and when (wall clock): from then on others may pass.
        slack: How exactly times of waiting are known, in seconds; without aging none matters.
    """
    killed = killed or {}
    waiting: dict[int, Event] = {}
    broken = []
    for event in events:
        if event.kind == "queued":
            waiting[event.ticket] = event
        elif event.kind == "gave up":
            waiting.pop(event.ticket, None)
        elif event.kind == "granted":
            own = waiting.pop(event.ticket, None)
            if own is None:
                broken.append(f"ticket {event.ticket} was granted, and didn't wait")
                continue
            at_most = -_priority(own, event.time + slack, aging), own.ticket
            for other in waiting.values():
                at_least = -_priority(other, event.time - slack, aging), other.ticket
                lives = event.time < killed.get(other.handle, _NEVER)
                if at_least < at_most and lives and _could_use(other, event.names):
                    broken.append(
                        f"ticket {own.ticket} ({own.priority}) was granted before ticket "
                        f"{other.ticket} ({other.priority})"
                    )
    return broken


def _priority(queued: Event, at: float, aging: float) -> int:
    return effective_priority(queued.priority, at - queued.time, aging)


def _could_use(queued: Event, names: Iterable[str]) -> bool:
    return not queued.names or bool({*queued.names} & {*names})


def standing_in(pool: Pool, ticket: int) -> Standing:
    """How things stand for the ticket of that number."""
    leases = [each.lease for each in pool.resources if each.lease is not None]
    standing = Standing(
        position=1 + sum(entry.ticket < ticket for entry in pool.queue),
        others=sum(entry.ticket != ticket for entry in pool.queue),
        held=len(leases),
        capacity=pool.capacity,
    )
    if not leases:
        return standing
    oldest = min(leases, key=lambda lease: lease.acquire_time)
    return standing._replace(
        longest_holder=oldest.holder_identity, longest_since=oldest.acquire_time
    )
