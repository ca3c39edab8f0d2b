"""What is done now and then when events have been written: who follows is woken, old ones go."""

from __future__ import annotations

from leasectl.model import parse_process
from leasectl.system.process import is_dead
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import sqlite3

# So many are removed at once, at most, of those that are over: nobody is to wait for that.
_TRIMMED_AT_ONCE = 512


def finish_writing(
    db: sqlite3.Connection, wake: Callable[[str], bool], *, seconds: float, number: int
) -> None:
    """After some were written, in their transaction: wake who follows, remove what is over.

    Args:
        db: The database.
        wake: As `event_rows.EventRows.write` has it.
        seconds: How old the oldest may be.
        number: How many are kept.
    """
    for pipe, process in db.execute("SELECT pipe, process FROM follower").fetchall():
        if not wake(pipe) and is_dead(parse_process(process)):
            db.execute("DELETE FROM follower WHERE pipe = ?", (pipe,))
    ((first, last, now),) = db.execute(
        "SELECT (SELECT min(number) FROM event), (SELECT max(number) FROM event), "
        "(SELECT time FROM event ORDER BY number DESC LIMIT 1)"
    )
    end = min(first + _TRIMMED_AT_ONCE, last)
    ((first_young,),) = db.execute(
        "SELECT min(number) FROM event WHERE number < ? AND time >= ?", (end, now - seconds)
    )
    old = end if first_young is None else first_young
    db.execute("DELETE FROM event WHERE number < ?", (min(end, max(old, last - number + 1)),))
