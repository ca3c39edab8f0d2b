"""A pool's pace, without comparing clocks.

What the grants of a pool owe its pace is a level, in grants: each adds one, each pace that goes by
takes one off, and none may lift it above the burst. Whoever is about to claim writes the level as
it is with that grant into the pool's object, guarded by what it has seen there, and only then
claims. What has gone by since the grant before is nobody's date: it is how long it has been
observed, by the clock of one host (`observed`). So grants are never faster than the pace; for who
has just arrived where nobody has watched they are one pace slower at most.

Never faster: an observer can't have seen a grant before it was written, and its own is written
after it has read its clock. So more time lies between the two writes than it has counted, and no
other grant does, for that would have changed the object. What it writes is by induction at least
what is true. One that was written and came to nothing, as another was faster or its process died,
costs a pace and gives none.
"""

from __future__ import annotations

from leasectl.engines.kubernetes.objects.objects import PoolObject
from leasectl.engines.kubernetes.queues.observed import Observed

# What is left of it by then is an error of numbers.
_ROUNDING_SECONDS = 1e-6


def seconds_left(pool: PoolObject, observed: Observed, now: float) -> float:
    """How long it takes until the next grant, as far as was observed; 0 for no time.

    Args:
        pool: As it was just seen.
        observed: Since when its last grant has been known.
        now: On the elapsed clock.
    """
    settings = pool.settings
    if not settings.pace_seconds or not pool.last_grant:
        return 0.0
    level, counted = min(pool.level, settings.burst), _counted(pool, observed, now)
    left = (level - (settings.burst - 1)) * settings.pace_seconds - counted
    return left if left > _ROUNDING_SECONDS else 0.0


def after_grant(pool: PoolObject, observed: Observed, now: float) -> float:
    """The level that a grant leaves, which has to be allowed."""
    settings = pool.settings
    level = min(pool.level, settings.burst)
    paid = _counted(pool, observed, now) / settings.pace_seconds if pool.last_grant else 0.0
    return min(settings.burst, max(0.0, level - paid) + 1)


def _counted(pool: PoolObject, observed: Observed, now: float) -> float:
    since = observed.since(f"{pool.id.uid} pace", pool.last_grant, pool.id.version)
    return max(0.0, now - since)
