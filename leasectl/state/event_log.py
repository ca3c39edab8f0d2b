"""Read and follow events.

`event_rows` writes them beside the changes that they describe. An index would make those changes
slower, so readers go through all events.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed
from leasectl.state.event_rows import EVENT_COLUMNS
from leasectl.state.rows import insert, parse_optional_process
from leasectl.system.process import is_dead, this_process

# Read in pieces of this size: a long reader prevents checkpoints of the database's log.
_READ_AT_ONCE = 2000
_LARGEST = (1 << 63) - 1  # integer in SQLite
_SELECT = (
    f"SELECT number, {EVENT_COLUMNS.replace('backend, ', '')} FROM event WHERE backend = :backend"
)
_WANTED = {
    "type": "type = :type",
    "handle": "handle = :handle",
    "name": "instr(',' || names || ',', ',' || :name || ',') > 0",
    "holder": "instr(holder_identity, :holder) > 0",
    "since": "time >= :since",
    "until": "time <= :until",
}


class StateEventLog:
    """The events of one backend; implements `EventLog`.

    Args:
        state: The opened state directory.
        backend: Its URL; empty for the embedded pools.
    """

    remark = ""

    def __init__(self, state: State, *, backend: str = "") -> None:
        self._state = state
        self._backend = backend

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        select, values = self._select(wanted)
        sql = f"{select} AND number > :after ORDER BY number LIMIT {_READ_AT_ONCE}"
        while True:
            if missed is None:
                rows = self._state.query(sql, **values, after=after)
            else:
                rows, gone = self._read_with_what_is_gone(sql, {**values, "after": after})
                if gone is not None:
                    missed(gone)
            yield from map(_event, rows)
            if len(rows) < _READ_AT_ONCE:
                return
            after = rows[-1]["number"]

    def _read_with_what_is_gone(
        self, sql: str, values: dict[str, object]
    ) -> tuple[list[sqlite3.Row], Missed | None]:
        """Read a part, and what was removed before it, as of the same instant."""
        state = self._state
        state.query("BEGIN")
        try:
            rows = state.query(sql, **values)
            oldest = state.query("SELECT number, time FROM event ORDER BY number LIMIT 1")
        finally:
            state.query("COMMIT")
        for number, time in oldest:
            count = number - 1 - int(str(values["after"]))
            if count > 0:
                return rows, Missed(count, time, number - 1)
        return rows, None

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        select, values = self._select(wanted)
        sql = f"{select} AND number < :before ORDER BY number DESC LIMIT :most"
        found: list[Event] = []
        before = _LARGEST
        while True:
            most = min(number - len(found), _READ_AT_ONCE)
            rows = self._state.query(sql, **values, before=before, most=most)
            found += map(_event, rows)
            if len(rows) < most or len(found) >= number:
                return found
            before = rows[-1]["number"]

    def _select(self, wanted: EventFilter) -> tuple[str, dict[str, object]]:
        """Return the start of a query for the wanted events, and its values."""
        values: dict[str, object] = {k: v for k, v in wanted._asdict().items() if v is not None}
        where = "".join(f" AND {_WANTED[each]}" for each in values)
        return f"{_SELECT}{where}", {**values, "backend": self._backend}

    def last_number(self) -> int:
        ((last,),) = self._state.query("SELECT coalesce(max(number), 0) FROM event")
        return int(last)

    def watch(self) -> StateEventWatch:
        return StateEventWatch(self._state)


class StateEventWatch:
    """A named pipe that every writer of an event here wakes; implements `EventWatch`.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._name = f"follower-{os.urandom(8).hex()}"
        self._pipe = state.listen(state.waiter_pipe(self._name))
        try:
            with state.transaction() as db:
                remove_dead_followers(state)
                row = {"pipe": self._name, "process": this_process().encode()}
                insert(db, "follower", row)
        except BaseException:
            self._pipe.close()
            raise

    @property
    def fd(self) -> int:
        return self._pipe.fd

    def clear(self) -> int:
        self._pipe.renew()
        return 0

    def close(self) -> None:
        with self._state.transaction() as db:
            db.execute("DELETE FROM follower WHERE pipe = ?", (self._name,))
        self._pipe.close()


def kept(state: State) -> tuple[int, float | None]:
    """Return how many events there are, of all backends, and the time of the oldest."""
    ((count, since),) = state.query("SELECT count(*), min(time) FROM event")
    return count, since


def refusal(state: State) -> str:
    """Write an event and undo it; return why that failed, or an empty text.

    Raises:
        StateUnwritable, CorruptState: Nothing at all can be written.
    """
    with state.transaction() as db:
        db.execute("SAVEPOINT trial")
        try:
            row = {**dict.fromkeys(EVENT_COLUMNS.split(", "), ""), "time": 0.0}
            insert(db, "event", row)
            return ""
        except sqlite3.Error as error:
            return str(error)
        finally:
            db.execute("ROLLBACK TO trial")
            db.execute("RELEASE trial")


def remove_dead_followers(state: State) -> None:
    """Remove the pipes of killed followers; inside a transaction."""
    for pipe, process in state.query("SELECT pipe, process FROM follower"):
        if is_dead(parse_optional_process(process)):
            state.db.execute("DELETE FROM follower WHERE pipe = ?", (pipe,))
            unlink(state.waiter_pipe(pipe))


def _event(row: Any) -> Event:
    (number, time, kind, pool_type, names, fences, *rest) = row
    return Event(
        number,
        time,
        kind,
        pool_type,
        tuple(names.split(",")) if names else (),
        tuple(map(int, fences.split(","))) if fences else (),
        *rest,
    )
