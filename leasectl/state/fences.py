"""Blocks of fences, and the database's main file, in which nothing gets lost.

SQLite's log holds what was committed last, and who cleans up or copies files may lose it. So the
database says only up to where fences are reserved (``meta.fence``), and its main file says so too,
on the disk, before anybody is shown the first of a block. Which of them was drawn last stands in
``state.lock``, where `State.draw_fences` finds it. What doesn't fit together costs the rest of a
block and no more: ``state.lock`` is new, the machine has been started again and may have lost what
was on no disk, a process of the version before has drawn fences of its own. Of those nothing but
the log knows until one of this version draws the next: that old processes go on losing.
"""

from __future__ import annotations

import sqlite3

# Writing back takes as long as some ten grants, or a hundred on a slow disk.
BLOCK = 1000
_PATIENCE_MS = 100


def reserve(db: sqlite3.Connection, last: int) -> int:
    """Reserve a block behind a fence, inside a transaction that is then to be written back.

    Returns:
        The last fence of the block.
    """
    end = last + BLOCK
    db.execute("UPDATE meta SET fence = ?", (end,))
    return end


def write_back(db: sqlite3.Connection) -> bool:
    """Have the database's main file hold all that is committed; outside any transaction.

    Returns:
        Whether it does: somebody who reads for long may be in the way, or a full disk.
    """
    try:
        ((before,),) = db.execute("PRAGMA busy_timeout").fetchall()
        db.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        try:
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        finally:
            db.execute(f"PRAGMA busy_timeout = {before}")
    except sqlite3.Error:
        return False
    return not busy
