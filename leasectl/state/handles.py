"""Records of handles: rows, reads, writes, changes of a held handle, purge."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from leasectl.errors import Cancelled, NotFound
from leasectl.model import (
    Handle,
    HandleState,
    Lease,
    OnReclaim,
    Process,
    Request,
    Scope,
)
from leasectl.state import rows
from leasectl.state.database import corrupt, unlink
from leasectl.state.directory import State
from leasectl.state.rows import (
    encode_labels,
    encode_process,
    encode_range,
    encode_where,
    parse_labels,
    parse_optional_process,
    parse_where,
)
from leasectl.state.timers import RELEASE_AT, Timers
from leasectl.system.process import is_dead
from leasectl.text.naming import is_name
from leasectl.text.wording import printable

if TYPE_CHECKING:
    import sqlite3

# The keeper also looks after a handle that has timers, or marks at its leases. CROSS: few of
# thousands of resources have a note, and SQLite can't know that.
IS_SEEN_TO = (
    "(EXISTS (SELECT 1 FROM timer WHERE timer.handle = handle.id) OR "
    "watched AND (EXISTS (SELECT 1 FROM mark_seen WHERE mark_seen.handle = handle.id) OR "
    "EXISTS (SELECT 1 FROM note CROSS JOIN resource USING (name, fence) "
    "WHERE owner = handle.id AND NOT is_ended)))"
)
_LEASE_COLUMNS = (
    "handle, name, fence, ticket, grant_number, acquire_time, renew_time, lease_transitions"
)
_ALL = "+"  # joins the types of a request that needs all
NEEDS_ALL = f"instr(types, '{_ALL}')"
# Columns with the names and values of fields: of a handle, of its request, and its processes.
_OF_HANDLE = [
    "id",
    "backend",
    "owner",
    "holder_identity",
    "state",
    "acquisition",
    "shared_dir",
    "settings",
    "lost_replies",
    "adopted_claim",
    "lost",
    "cancelled",
    "served",
    "unconfirmed",
    "explicit_ttl",
]
_OF_REQUEST = [
    "count",
    "name",
    "ttl_seconds",
    "release_after_seconds",
    "scope",
    "priority",
    "on_reclaim",
]
_PROCESSES = ("guard", "waiter", "runner")
# In the order that `_parse` expects: of the request, then of the handle, its flags last.
_SELECT = (
    "SELECT coalesce(types, type), count, name, ttl_seconds, release_after_seconds, scope, labels, "
    "priority, release_between, where_properties, on_reclaim, "
    "id, backend, owner, holder_identity, state, acquisition, guard, waiter, runner, "
    f"shared_dir, {RELEASE_AT}, settings, lost_replies, adopted_claim, "
    # By the last grant, if several types would do.
    f"CASE WHEN types IS NULL OR {NEEDS_ALL} OR state = 'acquiring' AND acquisition = 1 "
    "THEN NULL ELSE type END, "
    "lost_reason, lost, cancelled, served, unconfirmed, explicit_ttl, joined FROM handle"
)
_ID, _FLAGS = 11, 27  # where the handle's own columns begin, and its flags
_HANDLES_AT_ONCE = 500  # older SQLite allows 999 values in a statement


def new_row(handle: Handle, *, watched: bool) -> dict[str, object]:
    """Return the row of a new request; for a watched one, the keeper has work to do."""
    request = handle.request
    row = {
        **{each: getattr(handle, each) for each in _OF_HANDLE},
        **{each: getattr(request, each) for each in _OF_REQUEST},
        **{each: encode_process(getattr(handle, each)) for each in _PROCESSES},
        "type": handle.granted_type or request.type,
        "types": _encode_types(request),
        "labels": encode_labels(request.labels),
        "release_between": encode_range(request.release_between_seconds),
        "where_properties": encode_where(request.where),
        "joined": 1 if handle.joined else None,
        "watched": watched,
    }
    # NULL is the default, and Python's sqlite3 is slow with None.
    return {column: value for column, value in row.items() if value is not None}


def _parse(row: Sequence[Any], leases: Sequence[sqlite3.Row]) -> Handle:
    """Read a handle.

    Args:
        row: As `_SELECT` reads it.
        leases: Rows of its leases, in order.

    Raises:
        ValueError: It holds a value that leasectl doesn't write.
    """
    # By position: there may be thousands, and a look-up by name is slow.
    request = _request(*row[:_ID])
    handle_id, backend, owner, identity, state, acquisition, *rest = row[_ID:_FLAGS]
    guard, waiter, runner = map(parse_optional_process, rest[:3])
    return Handle(
        handle_id,
        backend,
        request,
        owner,
        identity,
        _require("state", state, _STATES),
        acquisition,
        tuple([_lease(each, identity, request) for each in leases]),
        guard,
        waiter,
        runner,
        *rest[3:],
        *map(bool, row[_FLAGS:]),
    )


@lru_cache(maxsize=64)  # most of thousands of handles have the same request
def _request(types: str, *columns: Any) -> Request:
    (
        count, name, ttl_seconds, release_after_seconds, scope, labels, priority, release_between,
        where, on_reclaim,
    ) = columns  # fmt: skip
    needs_all = _ALL in types
    pool_type, *other_types = types.split(_ALL if needs_all else ",")
    return Request(
        pool_type,
        count,
        name,
        ttl_seconds,
        release_after_seconds,
        _require("scope", scope, _SCOPES),
        parse_labels(labels),
        tuple(other_types),
        priority,
        _parse_range(release_between),
        parse_where(where),
        _require("on_reclaim", on_reclaim, _ON_RECLAIM),
        needs_all,
    )


def _encode_types(request: Request) -> str | None:
    """Join several types: with commas, or with plus signs if all are needed."""
    return (_ALL if request.needs_all else ",").join(request.types) if request.other_types else None


_STATES, _SCOPES, _ON_RECLAIM = map(get_args, (HandleState, Scope, OnReclaim))


def _require(column: str, text: str, known: Collection[str]) -> Any:
    if text not in known:
        raise ValueError(f'{column} "{text}"')
    return text


def _lease(row: sqlite3.Row, holder_identity: str, request: Request) -> Lease:
    _, name, fence, ticket, grant, acquire_time, renew_time, transitions = row
    return Lease(
        name,
        fence,
        ticket,
        grant,
        holder_identity,
        acquire_time,
        renew_time,
        request.ttl_seconds,
        transitions,
        request.labels,
    )


def _parse_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    shortest, longest = map(float, text.split(","))
    return shortest, longest


_WATCHED = "WHERE watched = 1 AND state <> 'released'"
_TELLS = (
    "guard IS NOT NULL OR runner IS NOT NULL OR ttl_seconds IS NOT NULL OR served OR unconfirmed "
    "OR labels <> '' OR id IN (SELECT handle FROM timer)"
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def new_id(pool_type: str) -> str:
    """Return a new random handle id, ``<type>-XXXXXX``."""
    # 256 isn't a multiple of 62; the small bias doesn't matter, the record's key is unique.
    return f"{pool_type}-" + "".join([_ALPHABET[byte % 62] for byte in os.urandom(6)])


class Handles:
    """The records of one state directory.

    Args:
        state: The opened state directory.

    Attributes:
        timers: The delayed releases that the keeper will do.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.timers = Timers(state)

    def load(self, handle_id: str) -> Handle | None:
        """Read one record; None when there is none."""
        if not is_name(handle_id):
            return None  # a database may not even accept the text
        found = self._select("WHERE id = ?", handle_id)
        return found[0] if found else None

    def require(self, handle_id: str) -> Handle:
        """Read one record, by its id or the end of it that status shows; NotFound for none."""
        handle = self.load(handle_id)
        if handle is None:
            found = [each for each in self.ids() if handle_id and each.endswith(f"-{handle_id}")]
            handle = self.load(found[0]) if len(found) == 1 else None
        if handle is None:
            raise NotFound(
                f'no handle "{printable(handle_id, longest=200)}" in {self._state.directory}; list '
                "handles with: leasectl status --wide; to release a resource by its name: leasectl "
                "release --names"
            )
        return handle

    def current(self, handle_id: str, acquisition: int) -> Handle | None:
        """Read one record; None if it was released or acquired again since."""
        handle = self.load(handle_id)
        if handle is None or handle.state == "released" or handle.acquisition != acquisition:
            return None
        return handle

    def ids(self) -> set[str]:
        """Return the ids of all records."""
        return {handle_id for (handle_id,) in self._state.read("SELECT id FROM handle")}

    def active(self, *, with_leases: bool = True) -> list[Handle]:
        """Return the handles that aren't released, by id; without their leases unless asked for."""
        return self._select("WHERE state <> 'released' ORDER BY id", with_leases=with_leases)

    def telling(self) -> list[Handle]:
        """Return the same as `active`, without leases where only their number matters."""
        return self._select(f"WHERE state <> 'released' AND ({_TELLS})", with_leases=False)

    def watched(self) -> list[Handle]:
        """Return the handles that the keeper looks after, without their leases."""
        return self._select(_WATCHED, with_leases=False)

    def watched_ids(self) -> list[str]:
        """Return the ids of those, also of damaged records."""
        return [handle_id for (handle_id,) in self._state.read(f"SELECT id FROM handle {_WATCHED}")]

    def load_watched(self, handle_id: str) -> Handle | None:
        """Read one of those; None if the keeper doesn't look after it."""
        found = self._select(f"{_WATCHED} AND id = ?", handle_id, with_leases=False)
        return found[0] if found else None

    def any_watched(self) -> bool:
        """Return whether the keeper has anything to look after, `Stay`s and `MadePool`s too."""
        return bool(
            self._state.query(
                f"SELECT 1 FROM handle {_WATCHED} UNION ALL "
                "SELECT 1 FROM stay UNION ALL SELECT 1 FROM made_pool LIMIT 1"
            )
        )

    def unannounced(self, *pool_types: str) -> list[Handle]:
        """Return handles with a grant that the acquiring process hasn't reported yet.

        Args:
            *pool_types: Of these types, and any of several types; none for all.
        """
        where = "WHERE waiter IS NOT NULL AND state = 'held' AND cancelled = 0"
        if not pool_types:
            return self._select(where)
        marks = ", ".join("?" * len(pool_types))
        return self._select(f"{where} AND (type IN ({marks}) OR {NEEDS_ALL})", *pool_types)

    def types_at(self, backend: str) -> list[str]:
        """Return the recorded types that were asked for at a backend, sorted."""
        rows = self._state.query(
            "SELECT DISTINCT type FROM handle WHERE backend = ? ORDER BY type", backend
        )
        return [row["type"] for row in rows]

    def holding(self, name: str, *, prefer: Callable[[Handle], bool]) -> Handle | None:
        """Return the first of `holders`."""
        return next(iter(self.holders(name, prefer=prefer)), None)

    def holders(self, name: str, *, prefer: Callable[[Handle], bool]) -> list[Handle]:
        """Return the handles that hold a resource, as far as the records say.

        Each of several backends may have one; so may both ends where `leasectl serve` and its
        clients share a state directory; and a ttl may have run out unnoticed. Preferred handles
        come first, adopted ones last.
        """
        found = self._select("WHERE id IN (SELECT handle FROM lease WHERE name = ?)", name)
        return sorted(found, key=lambda h: (h.adopted_claim is not None, not prefer(h)))

    def create(self, handle: Handle, *, remote: bool, now: float | None = None) -> None:
        """Record a new request.

        Args:
            handle: The request.
            remote: Its leases come from a server.
            now: CLOCK_BOOTTIME, seconds, if it is queued now; else None.
        """
        watched = is_watched(handle, remote=remote)
        self.insert(new_row(handle, watched=watched), now=now)

    def insert(self, row: dict[str, object], *, now: float | None) -> None:
        """Record a new request with a `new_row` that was prepared before the lock was taken."""
        rows.insert(self._state.db, "handle", row if now is None else {**row, "queued_at": now})

    def begin_again(
        self,
        handle: Handle,
        waiter: Process,
        *,
        runner: Process | None = None,
        remote: bool,
        now: float,
    ) -> Handle:
        """Start the next acquisition of a handle: earlier delayed releases don't apply to it.

        Args:
            handle: As just loaded, in this transaction; its delayed release may be another.
            waiter: The process that acquires.
            runner: That process, if it renews until it announces.
            remote: Its leases come from a server.
            now: CLOCK_BOOTTIME, seconds.
        """
        self._clear(handle.id)
        self._unlink_pipes_of_the_dead(handle)
        begun = handle._replace(
            state="acquiring",
            acquisition=handle.acquisition + 1,
            waiter=waiter,
            runner=runner,
            leases=(),
            release_at=None,
            lost=False,
            lost_reason="",
            lost_replies=0,
            cancelled=False,
            unconfirmed=False,
        )
        self._state.db.execute(
            "UPDATE handle SET state = 'acquiring', acquisition = ?, waiter = ?, "
            "runner = ?, released_at = NULL, lost = 0, lost_reason = '', lost_replies = 0, "
            "cancelled = 0, unconfirmed = 0, release_after_seconds = ?, watched = ?, "
            "queued_at = ? WHERE id = ?",
            (
                begun.acquisition,
                waiter.encode(),
                rows.encode_process(runner),
                begun.request.release_after_seconds,
                is_watched(begun, remote=remote),
                now,
                begun.id,
            ),
        )
        return begun

    def grant(self, handle: Handle, leases: Sequence[Lease], *, now: float) -> None:
        """Record the leases of the current acquisition; `announce` writes the names file.

        Args:
            handle: As just loaded, or created, in this transaction.
            leases: All of them, in order, including those that had arrived before.
            now: CLOCK_BOOTTIME, seconds.

        Raises:
            Cancelled: Another acquisition of the handle has begun.
        """
        self._record(handle, leases, first=1)
        granted = self._state.db.execute(
            "UPDATE handle SET state = 'held', type = ?, granted_at = ? "
            "WHERE id = ? AND acquisition = ?",
            (handle.granted_type or handle.request.type, now, handle.id, handle.acquisition),
        )
        if not granted.rowcount:
            raise Cancelled(f"handle {handle.id} was acquired again by another process")

    def arrived(self, handle: Handle, lease: Lease) -> None:
        """Record one lease of several that are still being acquired."""
        last = "SELECT coalesce(max(position), 0) FROM lease WHERE handle = ?"
        self._record(handle, [lease], first=self._state.query(last, handle.id)[0][0] + 1)

    def returned(self, handle: Handle, name: str) -> None:
        """Remove one lease from the record of a handle that goes on."""
        self._remove(handle.id, [name])
        if handle.state == "held":
            left = [each for each in handle.names if each != name]
            self._state.stage_names(handle.id, left)

    def cancel(self, handle: Handle) -> None:
        """Ask the acquiring process to give up, and wake it."""
        self._state.db.execute("UPDATE handle SET cancelled = 1 WHERE id = ?", (handle.id,))
        self._state.wake(self._state.cancel_pipe(handle.id, handle.acquisition))

    def announce(self, handle: Handle, *, guard: Process | None, runner: Process | None) -> bool:
        """Record that the caller knows of the grant, and who guards it from now on.

        Returns:
            Whether the acquisition still was the current one, and held.
        """
        updated = self._state.db.execute(
            "UPDATE handle SET waiter = NULL, guard = ?, runner = ?, "
            f"watched = ? OR {IS_SEEN_TO} "
            "WHERE id = ? AND acquisition = ? AND state = 'held' AND cancelled = 0",
            (
                rows.encode_process(guard),
                rows.encode_process(runner),
                is_watched(handle._replace(guard=guard, waiter=None, runner=runner), remote=False),
                handle.id,
                handle.acquisition,
            ),
        )
        if updated.rowcount == 1 and not self._state.names_files.is_there(handle.id):
            self._state.stage_names(handle.id, handle.names)
        return updated.rowcount == 1

    def drop(self, handle: Handle, names: Sequence[str], *, now: float, lost: bool = False) -> None:
        """Remove names from a record; with the last one the handle is released.

        Args:
            handle: As just loaded, in this transaction.
            names: The names that it no longer holds.
            now: CLOCK_BOOTTIME, seconds.
            lost: The names went away without having been given back.
        """
        gone = set(names)
        left = [name for name in handle.names if name not in gone]
        if not left:
            self.release(handle, now=now, lost=lost or handle.lost)
            return
        self._remove(handle.id, gone)
        if lost:
            self._state.db.execute("UPDATE handle SET lost = 1 WHERE id = ?", (handle.id,))
        self._state.stage_names(handle.id, left)

    def release(self, handle: Handle, *, now: float, lost: bool = False) -> None:
        """Record that a handle holds nothing and waits for nothing; wake its runner.

        After a loss the runner stays on record: it may still be ending its command, which other
        waiters wait for.
        """
        self._clear(handle.id)
        if handle.runner is not None:
            self._state.wake(self._state.runner_pipe(handle.id))
        self._unlink_pipes_of_the_dead(handle)
        self._state.db.execute(
            "UPDATE handle SET state = 'released', waiter = NULL, released_at = ?, "
            "runner = CASE WHEN ? THEN runner END, lost = ? WHERE id = ?",
            (now, lost, lost, handle.id),
        )

    def forget(self, handle_id: str, acquisition: int) -> None:
        """Remove the record, its names file, and the pipe that a killed `run` may have left.

        Nothing happens if the handle was acquired again since.
        """
        deleted = self._state.db.execute(
            "DELETE FROM handle WHERE id = ? AND acquisition = ?", (handle_id, acquisition)
        )
        if deleted.rowcount:
            self._clear(handle_id)
            unlink(self._state.runner_pipe(handle_id))
            unlink(self._state.cancel_pipe(handle_id, acquisition))
            self._state.stage_names(handle_id, None)

    def _unlink_pipes_of_the_dead(self, handle: Handle) -> None:
        # A living runner removes its pipe, and may still be told of a loss by it. If it dies right
        # after this, `tidy` removes the pipe.
        if is_dead(handle.runner):
            unlink(self._state.runner_pipe(handle.id))
        if is_dead(handle.waiter):
            unlink(self._state.cancel_pipe(handle.id, handle.acquisition))

    def _record(self, handle: Handle, leases: Sequence[Lease], *, first: int) -> None:
        for position, lease in enumerate(leases, start=first):
            row = {
                "handle": handle.id,
                "name": lease.name,
                "position": position,
                "fence": lease.fence,
                "ticket": lease.ticket,
                "grant_number": lease.grant,
                "acquire_time": lease.acquire_time,
                "renew_time": lease.renew_time,
                "lease_transitions": lease.lease_transitions,
            }
            rows.insert(self._state.db, "lease", row, replace=True)

    def _remove(self, handle_id: str, names: Collection[str]) -> None:
        sql = "DELETE FROM lease WHERE handle = ? AND name = ?"
        self._state.db.executemany(sql, [(handle_id, name) for name in names])
        self.timers.disarm(handle_id, names)

    def _clear(self, handle_id: str) -> None:
        self._state.db.execute("DELETE FROM lease WHERE handle = ?", (handle_id,))
        self.timers.disarm(handle_id)
        self._state.stage_names(handle_id, ())

    def _select(self, where: str, *values: object, with_leases: bool = True) -> list[Handle]:
        found = self._state.query(f"{_SELECT} {where}", *values)
        ids = tuple([row[_ID] for row in found]) if with_leases else ()
        leases = self._leases_of(ids)
        return [self._handle(row, leases.get(row[_ID], ())) for row in found]

    def _leases_of(self, handle_ids: Sequence[str]) -> dict[str, list[sqlite3.Row]]:
        """Return the rows of handles' leases by the handle's id, in the order of the grant."""
        found: dict[str, list[sqlite3.Row]] = {}
        for start in range(0, len(handle_ids), _HANDLES_AT_ONCE):
            some = handle_ids[start : start + _HANDLES_AT_ONCE]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT {_LEASE_COLUMNS} FROM lease WHERE handle IN ({marks}) ORDER BY position"
            for row in self._state.query(sql, *some):
                found.setdefault(row[0], []).append(row)
        return found

    def _handle(self, row: sqlite3.Row, leases: Sequence[sqlite3.Row]) -> Handle:
        try:
            return _parse(row, leases)
        except ValueError as error:
            raise corrupt(
                self._state.path("state.db"), f'holds a bad record of "{row[_ID]}": {error}'
            ) from error


def is_watched(handle: Handle, *, remote: bool) -> bool:
    """Return whether the keeper has work to do for a handle while it isn't released.

    An acquisition from a server needs it from the start: if its process is killed, no other waiter
    here notices.

    Args:
        handle: As it is, or is about to be.
        remote: Its leases come from a server; counts only while it is being acquired.
    """
    is_under_way = remote and handle.waiter is not None
    is_delayed = handle.request.release_after_seconds is not None
    return _is_followed(handle) or is_delayed or is_under_way or renews_itself(handle)


def renews_itself(handle: Handle) -> bool:
    """Return whether its ttl is renewed without the holder's doing, see `rows.is_renewed`."""
    ttl, scope, is_followed = handle.request.ttl_seconds, handle.request.scope, _is_followed(handle)
    return rows.is_renewed(ttl, scope, is_explicit=handle.explicit_ttl, is_followed=is_followed)


def _is_followed(handle: Handle) -> bool:
    return handle.guard is not None or handle.runner is not None


KEEP_UNGUARDED_SECONDS = 24 * 3600.0
_NEXT = (
    "SELECT id, state, acquisition, guard, runner, released_at FROM handle WHERE id > ? "
    "ORDER BY id LIMIT ?"
)
_IS_PLAIN = (
    "SELECT 1 FROM handle WHERE id = ? AND acquisition = ? AND state = 'held' "
    "AND watched = 0 AND runner IS NULL AND lost = 0"
)


def purge(state: State, *, now: float, limit: int) -> None:
    """Forget released records that no command can use any more; inside a transaction.

    A released record stays as long as its guard lives, so that `reacquire` works; without a guard
    it stays for a day. It also stays while its `run` ends the command of a lost lease, since
    waiters wait for that.

    Args:
        state: The opened state directory.
        now: CLOCK_BOOTTIME, seconds.
        limit: How many records to look at, of all; the next call goes on with the next ones.
    """
    handles = Handles(state)
    ((cursor,),) = state.query("SELECT purge_cursor FROM meta")
    rows = state.query(_NEXT, cursor, limit)
    for row in rows:
        if row["state"] != "released":
            continue
        guard = parse_optional_process(row["guard"])
        is_old = now - row["released_at"] >= KEEP_UNGUARDED_SECONDS
        runner = parse_optional_process(row["runner"])
        is_ending = runner is not None and not is_dead(runner)
        if not is_ending and (is_old if guard is None else is_dead(guard)):
            handles.forget(row["id"], row["acquisition"])
    cursor_now = rows[-1]["id"] if len(rows) == limit else ""
    if cursor_now != cursor:
        state.db.execute("UPDATE meta SET purge_cursor = ?", (cursor_now,))


def is_plain(state: State, handle: Handle) -> bool:
    """Return whether a handle still holds exactly what it was granted, and nothing depends on it.

    There is no guard, no `run` and no delayed release, and it has lost nothing.

    Args:
        state: The opened state directory.
        handle: As it was when it was granted.
    """
    return bool(state.query(_IS_PLAIN, handle.id, handle.acquisition))


def forget_plain(state: State, handle: Handle) -> None:
    """Forget a handle that `is_plain` in the same transaction: its record and its names file."""
    state.db.execute("DELETE FROM handle WHERE id = ?", (handle.id,))
    for name in handle.names:  # the full key takes half the time
        state.db.execute("DELETE FROM lease WHERE handle = ? AND name = ?", (handle.id, name))
    state.stage_names(handle.id, None)


def count_lost_replies(state: State, handle: Handle, number: int) -> None:
    """Record how many answers of a server were lost that may have carried a grant."""
    state.db.execute("UPDATE handle SET lost_replies = ? WHERE id = ?", (number, handle.id))


def note_answer(state: State, handle: Handle, *, confirmed: bool) -> bool:
    """Record that a grant is about to be reported, or that the report has arrived.

    The caller may know of the grant from the first on, so the grant outlives this process. Either
    disarms the timer that would give it back if no caller heard of it.

    Returns:
        Whether the acquisition still is the current one, and held.
    """
    handles = Handles(state)
    handles.timers.disarm(handle.id)
    state.db.execute("UPDATE handle SET unconfirmed = ? WHERE id = ?", (not confirmed, handle.id))
    if confirmed:
        count_lost_replies(state, handle, 0)
    return handles.announce(handle, guard=handle.guard, runner=None)


def remember_release_after(
    state: State, handle: Handle, seconds: float, between: tuple[float, float] | None
) -> None:
    """Make a delayed release part of the request, so that `reacquire` arms it again.

    Args:
        state: The opened state directory.
        handle: The handle.
        seconds: The delay.
        between: The range that it was drawn from, see `Request.release_between_seconds`.
    """
    state.db.execute(
        "UPDATE handle SET release_after_seconds = ?, release_between = ? WHERE id = ?",
        (seconds, rows.encode_range(between), handle.id),
    )


def change_ttl(state: State, handle: Handle, seconds: float, *, explicit: bool) -> None:
    """Record another ttl, and whether the user asked for that one.

    Args:
        state: The opened state directory.
        handle: As just loaded; nothing happens if it was acquired again since.
        seconds: The ttl.
        explicit: See `Handle.explicit_ttl`.
    """
    changed = handle._replace(
        request=handle.request._replace(ttl_seconds=seconds), explicit_ttl=explicit
    )
    state.db.execute(
        "UPDATE handle SET ttl_seconds = ?, explicit_ttl = ?, "
        f"watched = ? OR {IS_SEEN_TO} WHERE id = ? AND acquisition = ?",
        (seconds, explicit, is_watched(changed, remote=False), handle.id, handle.acquisition),
    )


def record_renewal(state: State, handle: Handle, wall: float) -> None:
    """Record when its leases were renewed; wall clock, in seconds."""
    state.db.execute("UPDATE lease SET renew_time = ? WHERE handle = ?", (wall, handle.id))


def explain_loss(state: State, handle: Handle, reason: str) -> None:
    """Record who has taken a lease of a handle by force, and why.

    Args:
        state: The opened state directory.
        handle: Nothing happens if it was acquired again since.
        reason: For people.
    """
    state.db.execute(
        "UPDATE handle SET lost_reason = ? WHERE id = ? AND acquisition = ?",
        (reason, handle.id, handle.acquisition),
    )


def seconds_since(
    state: State, handle_id: str, what: Literal["queued", "granted"], *, now: float
) -> float | None:
    """Return how long ago a handle's request was sent, or granted; None if that isn't known.

    Args:
        state: The opened state directory.
        handle_id: The handle.
        what: Which of the two.
        now: CLOCK_BOOTTIME, seconds.
    """
    rows = state.query(
        "SELECT queued_at AS queued, granted_at AS granted FROM handle WHERE id = ?", handle_id
    )
    return next((now - row[what] for row in rows if row[what]), None)
