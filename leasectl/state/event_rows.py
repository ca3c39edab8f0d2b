"""Write and trim events."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

from leasectl.model import parse_process
from leasectl.state.rows import insert
from leasectl.system.process import is_dead
from leasectl.text.naming import is_reserved

# The usual `state.event.Kept`.
KEPT_SECONDS = 30 * 86400.0
KEPT_NUMBER = 100_000
_EVENTS_PER_TRIMMING = 64
# In between, even hundreds of processes write less than what is left; most write once.
_WRITES_PER_LOOK_AT_DISK = 8
# More than the database's log.
LEFT_FOR_LEASES_BYTES = 4 << 20


def is_written(pool_type: str, kind: str) -> bool:
    """Return whether an event is written.

    Of the pools of `once`, only the events of the work are: users don't see these pools.
    """
    return not is_reserved(pool_type) or kind.startswith("work ")


def leaves_room(fd: int, size: int = 0) -> bool:
    """Return whether a disk has the room that leases need, also after so many bytes more.

    The bytes go into the database's log and from there into the database, so they count twice.
    """
    disk = os.fstatvfs(fd)
    left = disk.f_bavail * disk.f_frsize - 2 * size
    return left >= LEFT_FOR_LEASES_BYTES or disk.f_blocks == 0


class EventRows:
    """The events of a transaction, which are written at its end, all or none.

    Args:
        db: The database.
        fd: A file beside it.

    Attributes:
        kept_seconds, kept_number: How old and how many are kept, see `state.event.Kept`.
        is_followed: Whether a reader follows them, if this transaction has seen that; else None.
        refusal: Why some couldn't be written, until `tell_refusal`.
        warn: Called with a line for people about that, the first time.
    """

    def __init__(self, db: sqlite3.Connection, fd: int) -> None:
        self._db = db
        self._fd = fd
        self._rows: list[dict[str, object]] = []
        self._writes = 0
        self.is_followed: bool | None = None
        self.kept_seconds = KEPT_SECONDS
        self.kept_number = KEPT_NUMBER
        self.refusal = ""
        self.warn: Callable[[str], None] | None = None

    def add(
        self,
        time: float,
        kind: str,
        type: str,
        names: Sequence[str] = (),
        fences: Sequence[int] = (),
        *,
        backend: str = "",
        handle: str = "",
        acquisition: int = 0,
        holder_identity: str = "",
        count: int = 1,
        priority: int = 0,
        ticket: int = 0,
        grant: int = 0,
        wait_seconds: float | None = None,
        hold_seconds: float | None = None,
        by: str = "",
        reason: str = "",
        build_url: str = "",
    ) -> None:
        """Stage an event, with the fields of `state.event.Event` and the backend's URL."""
        if not is_written(type, kind):
            return
        row = {
            "time": time,
            "kind": kind,
            "backend": backend,
            "type": type,
            "names": ",".join(names),
            "fences": ",".join(map(str, fences)),
            "handle": handle,
            "acquisition": acquisition,
            "holder_identity": holder_identity,
            "count": count,
            "priority": priority,
            "ticket": ticket,
            "grant_number": grant,
            "ended_by": by,
            "reason": reason,
            "build_url": build_url,
        }
        # NULLs are left out: Python's sqlite3 is slow with None.
        if wait_seconds is not None:
            row["wait_seconds"] = wait_seconds
        if hold_seconds is not None:
            row["hold_seconds"] = hold_seconds
        self._rows.append(row)

    def clear(self) -> None:
        """Forget the staged events: they haven't happened, or were written."""
        self._rows.clear()
        self.is_followed = None

    def write(self, wake: Callable[[str], bool]) -> None:
        """Write the staged events, and wake their followers; if only that fails, the rest commits.

        Args:
            wake: Wakes the reader of a named pipe once the transaction has ended.
        """
        if not self._rows or not self.kept_number:
            return
        # Events make the database grow while it has few of them. If it can't grow, its log can't be
        # checkpointed and grows instead, until nothing can be changed at all.
        if self._writes % _WRITES_PER_LOOK_AT_DISK == 0 and not leaves_room(self._fd):
            self.refusal = "the disk is all but full"
            return
        self._writes += 1
        db, number = self._db, len(self._rows)
        if number > 1:  # a single one needs no savepoint
            db.execute("SAVEPOINT events")
        try:
            for row in self._rows:
                last = insert(db, "event", row).lastrowid or 0
            if last % _EVENTS_PER_TRIMMING < number or self._has_followers():
                finish_writing(db, wake, seconds=self.kept_seconds, number=self.kept_number)
        except sqlite3.Error as error:
            if not db.in_transaction:
                raise
            if number > 1:
                db.execute("ROLLBACK TO events")
            self.refusal = str(error)
        if number > 1:
            db.execute("RELEASE events")

    def _has_followers(self) -> bool:
        if self.is_followed is None:
            return self._db.execute(_FOLLOWED).fetchone() is not None
        return self.is_followed

    def tell_refusal(self, path: str) -> None:
        """Warn once why events couldn't be written; outside the transaction.

        Args:
            path: Of the database.
        """
        refusal, self.refusal = self.refusal, ""
        warn, self.warn = self.warn, None
        if warn is not None:
            warn(f"can't write events to {path} ({refusal}); leases work without them")


EVENT_COLUMNS = (
    "time, kind, backend, type, names, fences, handle, acquisition, holder_identity, count, "
    "priority, ticket, grant_number, wait_seconds, hold_seconds, ended_by, reason, build_url"
)
_FOLLOWED = "SELECT 1 FROM follower LIMIT 1"


# At most so many old ones are removed at once, since other processes wait meanwhile.
_TRIMMED_AT_ONCE = 512


def finish_writing(
    db: sqlite3.Connection, wake: Callable[[str], bool], *, seconds: float, number: int
) -> None:
    """Wake followers and remove old events, in the transaction that has written some.

    Args:
        db: The database.
        wake: Wakes the reader of a named pipe once the transaction has ended.
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
