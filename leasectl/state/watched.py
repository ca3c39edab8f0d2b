"""What the keeper has to know of each handle that it sees to, and which of them have changed.

A record that it sees to can't change without its handle being noted in ``handle_change``, whichever
version changes it: triggers do it, in the same transaction. So who has read all of them once reads
only what was noted since; what is read is never older than what is noted.
"""

from __future__ import annotations

import contextlib

from leasectl.errors import LeaseError
from leasectl.model import Process
from leasectl.state.database import corrupt
from leasectl.state.directory import State
from leasectl.state.rows import is_renewed, parse_optional_process
from leasectl.typed.hints import TYPE_CHECKING
from leasectl.typed.tuples import NamedTuple

if TYPE_CHECKING:
    import sqlite3

# So many of the last notes are kept, for keepers that haven't read them yet; there may be several.
_KEPT = 1000
_SELECT = (
    "SELECT id, acquisition, state, ttl_seconds, scope, explicit_ttl, guard, waiter, runner "
    "FROM handle WHERE watched = 1 AND state <> 'released'"
)


class Watched(NamedTuple):
    """What the keeper has to know of a handle that it sees to.

    Args:
        id: The handle's.
        acquisition: The number of its acquisition.
        is_held: It was granted.
        guard: The process whose death releases it.
        waiter: The process that acquires, until it has announced.
        runner: The process that renews while it lives.
        ttl_seconds: Of leases that are renewed without the holder's doing; None of others.
    """

    id: str
    acquisition: int
    is_held: bool
    guard: Process | None
    waiter: Process | None
    runner: Process | None
    ttl_seconds: float | None

    @property
    def processes(self) -> frozenset[Process]:
        """Those whose end may bring work."""
        some = self.guard, self.waiter, self.runner
        return frozenset(process for process in some if process is not None)


class Changes(NamedTuple):
    """What was found to have changed.

    Args:
        handles: By id, as it is now; None for one that isn't to be seen to any more.
        are_all: These are all that there are: any other isn't to be seen to any more.
    """

    handles: dict[str, Watched | None]
    are_all: bool


class WatchedHandles:
    """The handles that a keeper sees to, and what changes of them from one look to the next.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: int | None = None  # the number of the last note that was read
        self._trimmed = 0

    def changes(self) -> Changes:
        """Read what has changed since this was called last; all, the first time.

        Raises:
            CorruptState: The database is damaged. The next call reads the same again.
        """
        notes = self._state.query(
            "SELECT number, handle FROM handle_change WHERE number >= ? ORDER BY number",
            self._seen or 0,
        )
        last = notes[-1]["number"] if notes else 0
        # The last that was read proves that none in between is missing: they go in order.
        if self._seen is None or not notes or notes[0]["number"] != self._seen:
            changes = Changes({each.id: each for each in self.all()}, are_all=True)
        else:
            ids = dict.fromkeys(note["handle"] for note in notes[1:])
            changes = Changes({each: self.one(each) for each in ids}, are_all=False)
        self._seen = last
        return changes

    def all(self) -> list[Watched]:
        """All of them, as they are now."""
        return [self._parse(row) for row in self._state.query(_SELECT)]

    def trim(self) -> None:
        """Forget notes that were read long ago, once there are many."""
        if self._seen is None or self._seen - self._trimmed < 2 * _KEPT:
            return
        with contextlib.suppress(LeaseError), self._state.transaction() as db:
            db.execute("DELETE FROM handle_change WHERE number <= ?", (self._seen - _KEPT,))
            self._trimmed = self._seen - _KEPT

    def one(self, handle_id: str) -> Watched | None:
        """One of them, as it is now; None when it isn't to be seen to."""
        rows = self._state.query(f"{_SELECT} AND id = ?", handle_id)
        return self._parse(rows[0]) if rows else None

    def _parse(self, row: sqlite3.Row) -> Watched:
        handle_id, acquisition, state, ttl, scope, explicit, *processes = row
        try:
            guard, waiter, runner = map(parse_optional_process, processes)
        except ValueError as error:
            raise corrupt(
                self._state.path("state.db"), f'holds a bad record of "{handle_id}": {error}'
            ) from error
        is_followed = guard is not None or runner is not None
        renews = is_renewed(ttl, scope, is_explicit=bool(explicit), is_followed=is_followed)
        return Watched(
            handle_id,
            acquisition,
            state == "held",
            guard,
            waiter,
            runner,
            ttl if renews else None,
        )
