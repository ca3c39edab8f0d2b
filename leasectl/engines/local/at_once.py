"""Whether a claim can be made without heeding cordons, moves and the like.

To see whether anything in a pool is over takes a look at all of which more is so than that it is
there, and there may be thousands. What a claim would take are a few, and most often nothing is over
of those.
"""

from __future__ import annotations

import sqlite3

from leasectl.model import Request, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import IS_FREE, IS_SPECIAL
from leasectl.system.process import is_dead

_ALONE = "SELECT count(*) < 2 FROM (SELECT 1 FROM ticket WHERE type = ? LIMIT 2)"
_FIRST = (  # in the order in which they are claimed
    "SELECT ends_at, process, "
    "cordoned OR leaves OR moves_to IS NOT NULL OR held_back_until IS NOT NULL AS is_closed "
    "FROM resource LEFT JOIN member ON member.name = resource.name "
    f"AND ({IS_SPECIAL}) WHERE type = ? AND {IS_FREE} ORDER BY fence, resource.name LIMIT ?"
)


def is_had_at_once(state: State, request: Request, pool: sqlite3.Row, now: float) -> bool:
    """Tell whether a request gets what is free, and nothing is over of that.

    Args:
        state: The opened state directory, inside a transaction.
        request: What is asked for; its ticket is in the queue.
        pool: As `LocalStore.pool` has it.
        now: CLOCK_BOOTTIME.
    """
    if request.name is not None or request.where or not state.query(_ALONE, request.type)[0][0]:
        return False
    if pool["next_expiry"] is not None and pool["next_expiry"] <= now:
        return False
    first = state.query(_FIRST, request.type, request.count)
    return len(first) == request.count and not any(_is_amiss(row, now) for row in first)


def _is_amiss(row: sqlite3.Row, now: float) -> bool:
    """Tell whether something is to be done of what is free before anybody has it."""
    if row["is_closed"] or (row["ends_at"] is not None and row["ends_at"] <= now):
        return True
    return row["process"] is not None and is_dead(parse_process(row["process"]))
