"""Whether each grant went to the best who waited at that instant, by a pool's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leasectl.engines.pacing import effective_priority
from leasectl.state.event import Event

_NEVER = float("inf")


def unfair(
    events: Iterable[Event],
    *,
    aging: float = 0.0,
    killed: Mapping[str, float] | None = None,
    slack: float = 0.0,
) -> list[str]:
    """Say which grants somebody better was passed by.

    Args:
        events: Of one pool, in their order, from the first on.
        aging: Of the pool, in seconds.
        killed: Handles whose waiters died, and when (wall clock): from then on others may pass.
        slack: How exactly times of waiting are known, in seconds; without ageing none matters.
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
