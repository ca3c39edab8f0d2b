"""Whether a claim can be made without a look at cordons, moves and the like.

To find whether anything in a pool has expired, all its memberships have to be read, and there may
be thousands. A claim takes only a few resources, and most often nothing of them has expired.
"""

from __future__ import annotations

import sqlite3

from leasectl.model import Request, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import IS_FREE, IS_SPECIAL
from leasectl.system.process import is_dead

_ALONE = "SELECT count(*) < 2 FROM (SELECT 1 FROM ticket WHERE type = ? LIMIT 2)"
_FIRST = (  # in the order of claims
    "SELECT ends_at, process, "
    "cordoned OR leaves OR moves_to IS NOT NULL OR held_back_until IS NOT NULL AS is_closed "
    "FROM resource LEFT JOIN member ON member.name = resource.name "
    f"AND ({IS_SPECIAL}) WHERE type = ? AND {IS_FREE} ORDER BY fence, resource.name LIMIT ?"
)


def is_had_at_once(state: State, request: Request, pool: sqlite3.Row, now: float) -> bool:
    """Return whether a request gets free resources as they are, with nothing expired among them.

    Args:
        state: The opened state directory, inside a transaction.
        request: The request; its ticket is in the queue.
        pool: The row of `LocalStore.pool`.
        now: CLOCK_BOOTTIME.
    """
    if request.name is not None or request.where or not state.query(_ALONE, request.type)[0][0]:
        return False
    if pool["next_expiry"] is not None and pool["next_expiry"] <= now:
        return False
    first = state.query(_FIRST, request.type, request.count)
    return len(first) == request.count and not any(_is_amiss(row, now) for row in first)


def _is_amiss(row: sqlite3.Row, now: float) -> bool:
    """Return whether a free resource needs a change of its membership before it is granted."""
    if row["is_closed"] or (row["ends_at"] is not None and row["ends_at"] <= now):
        return True
    return row["process"] is not None and is_dead(parse_process(row["process"]))
