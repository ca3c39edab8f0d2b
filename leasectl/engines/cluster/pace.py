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

from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import with_grant
from leasectl.engines.cluster.objects import Change, Found, PoolObject
from leasectl.engines.cluster.observed import Observed
from leasectl.engines.cluster.place import Place
from leasectl.engines.cluster.view import PoolView

if TYPE_CHECKING:
    from leasectl.engines.cluster.ticket import OwnTicket

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


def seconds_to_pay(own: OwnTicket, view: PoolView, observed: Observed, now: float) -> float:
    """How long it takes until the pool's pace lets a ticket through; 0 where it has.

    Args:
        own: Which.
        view: The pool as it was just seen.
        observed: Since when its last grant has been known.
        now: On the elapsed clock.
    """
    if own.has_paid or view.pool is None:
        return 0.0
    return seconds_left(view.pool, observed, now)


def to_pay(own: OwnTicket, view: PoolView, place: Place) -> Change | None:
    """What writes a ticket's grant to the pool's pace; None where it needn't pay.

    Args:
        own: Which.
        view: The pool as it was just seen.
        place: Where the pool is.
    """
    pool, observed, now = view.pool, place.observed, place.clock.elapsed()
    if own.has_paid or pool is None or not pool.settings.pace_seconds:
        return None
    new = with_grant(pool, after_grant(pool, observed, now), own.object_name)

    def is_done(found: Found) -> bool:
        return isinstance(found, PoolObject) and (found.level, found.last_grant) == (
            new.level,
            new.last_grant,
        )

    return Change(pool, new, is_done)


def pay(own: OwnTicket, view: PoolView, place: Place, paid: Change) -> bool:
    """Write that before the grant; return whether it is done, and the pool knows of it then."""
    assert isinstance(paid.seen, PoolObject) and isinstance(paid.new, PoolObject)
    written = place.objects.replace(paid.seen, paid.new, paid.is_done)
    if written.object is None:
        return False
    own.has_paid = True
    view.put(written.object)
    return True


def note_paid(view: PoolView, place: Place, paid: Change) -> None:
    """Have all of this state directory know since when that grant has been there."""
    there = view.pool if view.pool is not paid.seen else paid.new
    if isinstance(there, PoolObject):
        seconds_left(there, place.observed, place.clock.elapsed())
        place.observed.save()


def _counted(pool: PoolObject, observed: Observed, now: float) -> float:
    since = observed.since(f"{pool.id.uid} pace", pool.last_grant, pool.id.version)
    return max(0.0, now - since)
