"""Handle records and names files: what was asked for, and what came of it.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from leasectl.errors import NotFound
from leasectl.model import (
    Handle,
    HandleState,
    Labels,
    Lease,
    Process,
    Request,
    Scope,
    parse_process,
)
from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.system.process import is_dead
from leasectl.text.naming import is_name
from leasectl.text.printable import printable

# Who asked a server of ours; ":" keeps it apart from the labels that people can give.
SERVED_LABEL = "serve:client"
KEEP_UNGUARDED_SECONDS = 24 * 3600.0
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_COLUMNS = (
    "id, backend, type, count, name, ttl_seconds, release_after_seconds, scope, labels, owner, "
    "holder_identity, state, acquisition, guard, waiter, runner, shared_dir, lost, "
    "settings, lost_replies, cancelled"
)
_RELEASE_AT = "(SELECT due FROM timer WHERE timer.handle = handle.id AND timer.name = '')"


def new_id(pool_type: str) -> str:
    """Make up a handle's id, ``<type>-XXXXXX``."""
    # 256 isn't a multiple of 62; the small bias doesn't matter, the record's key is unique.
    return f"{pool_type}-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(6))


def encode_labels(labels: Labels) -> str:
    """Write labels as one text; `parse_labels` reads it back."""
    return "\n".join(f"{key}={value}" for key, value in labels)


def parse_labels(text: str) -> Labels:
    """Read what `encode_labels` wrote."""
    return tuple(
        (key, value) for key, _, value in (line.partition("=") for line in text.split("\n") if line)
    )


class Handles:
    """The records of one state directory."""

    def __init__(self, state: State) -> None:
        self._state = state

    def load(self, handle_id: str) -> Handle | None:
        """Read one record; None when there is none."""
        if not is_name(handle_id):
            return None  # might not even be text that a database takes
        found = self._select("WHERE id = ?", handle_id)
        return found[0] if found else None

    def require(self, handle_id: str) -> Handle:
        """Read one record; NotFound when there is none."""
        handle = self.load(handle_id)
        if handle is None:
            raise NotFound(
                f'no handle "{printable(handle_id, longest=200)}" in {self._state.directory}; list '
                "the held ones with: leasectl status"
            )
        return handle

    def current(self, handle_id: str, acquisition: int) -> Handle | None:
        """Read one record; None when it is released or has moved on from that acquisition."""
        handle = self.load(handle_id)
        if handle is None or handle.state == "released" or handle.acquisition != acquisition:
            return None
        return handle

    def ids(self) -> set[str]:
        """All ids that there are records of."""
        return {handle_id for (handle_id,) in self._state.query("SELECT id FROM handle")}

    def active(self) -> list[Handle]:
        """All that aren't released, oldest id first."""
        return self._select("WHERE state <> 'released' ORDER BY id")

    def watched(self) -> list[Handle]:
        """Those that the keeper has to watch, release or renew."""
        return self._select("WHERE watched = 1 AND state <> 'released'")

    def any_watched(self) -> bool:
        return bool(
            self._state.query(
                "SELECT 1 FROM handle WHERE watched = 1 AND state <> 'released' LIMIT 1"
            )
        )

    def unannounced(self, pool_type: str | None = None) -> list[Handle]:
        """Those that were granted, while the process that asked has not yet told anybody."""
        where = "WHERE waiter IS NOT NULL AND state = 'held' AND cancelled = 0"
        if pool_type is None:
            return self._select(where)
        return self._select(where + " AND type = ?", pool_type)

    def holding(self, name: str, *, prefer: str = "") -> Handle | None:
        """The handle that holds a resource.

        Where `leasectl serve` and its clients share a state directory there are two: one for each
        side of the connection. Then it is the one of the preferred backend.
        """
        found = self._select(
            "WHERE id IN (SELECT handle FROM lease WHERE name = ?) ORDER BY backend <> ?",
            name,
            prefer,
        )
        return found[0] if found else None

    def create(self, handle: Handle, *, on_server: bool) -> None:
        """Record a new request; its names file comes with the grant.

        Args:
            handle: The request.
            on_server: What it gets lives on a server.
        """
        request = handle.request
        self._state.db.execute(
            f"INSERT INTO handle ({_COLUMNS}, watched) VALUES ({'?, ' * 21}?)",
            (
                handle.id,
                handle.backend,
                request.type,
                request.count,
                request.name,
                request.ttl_seconds,
                request.release_after_seconds,
                request.scope,
                encode_labels(request.labels),
                handle.owner,
                handle.holder_identity,
                handle.state,
                handle.acquisition,
                _encode(handle.guard),
                _encode(handle.waiter),
                _encode(handle.runner),
                handle.shared_dir,
                handle.lost,
                handle.settings,
                handle.lost_replies,
                handle.cancelled,
                is_watched(handle, on_server=on_server),
            ),
        )

    def begin_again(self, handle: Handle, waiter: Process, *, on_server: bool) -> Handle:
        """Start the next acquisition of a handle: nothing that was armed before applies to it.

        Args:
            handle: As just loaded, in this transaction.
            waiter: The process that acquires.
            on_server: What it gets lives on a server.
        """
        self._clear(handle.id)
        self._unlink_pipes_of_the_dead(handle)
        begun = handle._replace(
            state="acquiring",
            acquisition=handle.acquisition + 1,
            waiter=waiter,
            runner=None,
            leases=(),
            release_at=None,
            lost=False,
            lost_replies=0,
            cancelled=False,
        )
        self._state.db.execute(
            "UPDATE handle SET state = 'acquiring', acquisition = ?, waiter = ?, "
            "runner = NULL, released_at = NULL, lost = 0, lost_replies = 0, cancelled = 0, "
            "watched = ? WHERE id = ?",
            (begun.acquisition, waiter.encode(), is_watched(begun, on_server=on_server), begun.id),
        )
        return begun

    def grant(self, handle: Handle, leases: Sequence[Lease], release_at: float | None) -> None:
        """Record what the current acquisition got, and list it in the names file."""
        self._record(handle, leases)
        self._state.db.execute("UPDATE handle SET state = 'held' WHERE id = ?", (handle.id,))
        if release_at is not None:
            self.arm(handle, release_at)
        self._state.stage_names(handle.id, [lease.name for lease in leases])

    def arrived(self, handle: Handle, lease: Lease) -> None:
        """Record one lease of several that are still being acquired."""
        self._record(handle, [lease])

    def returned(self, handle: Handle, name: str) -> None:
        """Take one lease out of the record, of a handle that goes on."""
        for table in ("lease", "timer"):
            self._state.db.execute(
                f"DELETE FROM {table} WHERE handle = ? AND name = ?", (handle.id, name)
            )
        if handle.state == "held":
            left = [each for each in handle.names if each != name]
            self._state.stage_names(handle.id, left)

    def count_lost_replies(self, handle: Handle, number: int) -> None:
        """Record how many answers are missing that may have carried a grant."""
        self._state.db.execute(
            "UPDATE handle SET lost_replies = ? WHERE id = ?", (number, handle.id)
        )

    def cancel(self, handle: Handle) -> None:
        """Ask the process that acquires to give up, and wake it."""
        self._state.db.execute("UPDATE handle SET cancelled = 1 WHERE id = ?", (handle.id,))
        self._state.wake(self._state.cancel_pipe(handle.id, handle.acquisition))

    def announce(self, handle: Handle, *, guard: Process | None, runner: Process | None) -> bool:
        """Record that the caller knows of the grant, and who guards it from now on.

        Returns:
            Whether the acquisition still was the current one, and held.
        """
        updated = self._state.db.execute(
            "UPDATE handle SET waiter = NULL, guard = ?, runner = ?, watched = ? OR "
            "EXISTS (SELECT 1 FROM timer WHERE timer.handle = handle.id) "
            "WHERE id = ? AND acquisition = ? AND state = 'held' AND cancelled = 0",
            (
                _encode(guard),
                _encode(runner),
                is_watched(handle._replace(guard=guard, waiter=None), on_server=False),
                handle.id,
                handle.acquisition,
            ),
        )
        return updated.rowcount == 1

    def arm(self, handle: Handle, due: float, name: str = "") -> None:
        """Have the keeper release the handle, or one of its names, at a time of CLOCK_BOOTTIME."""
        self._state.db.execute(
            "INSERT OR REPLACE INTO timer VALUES (?, ?, ?, ?)",
            (handle.id, name, handle.acquisition, due),
        )
        self._state.db.execute("UPDATE handle SET watched = 1 WHERE id = ?", (handle.id,))

    def remember_release_after(self, handle: Handle, seconds: float) -> None:
        """Make a delayed release part of the request, so that `reacquire` arms it again."""
        self._state.db.execute(
            "UPDATE handle SET release_after_seconds = ? WHERE id = ?", (seconds, handle.id)
        )

    def timers(self) -> list[tuple[str, str, int, float]]:
        """All armed releases: handle id, name or '', acquisition, due time."""
        rows = self._state.query("SELECT handle, name, acquisition, due FROM timer ORDER BY due")
        return [(str(h), str(n), int(a), float(d)) for h, n, a, d in rows]

    def timers_of_nobody(self) -> list[str]:
        """Ids that a release is armed for and that no handle has."""
        rows = self._state.query(
            "SELECT DISTINCT handle FROM timer WHERE NOT EXISTS "
            "(SELECT 1 FROM handle WHERE id = timer.handle)"
        )
        return [handle_id for (handle_id,) in rows]

    def disarm(self, handle_id: str) -> None:
        """Have the keeper release nothing of a handle later."""
        self._state.db.execute("DELETE FROM timer WHERE handle = ?", (handle_id,))

    def answered(self, handle: Handle, *, confirmed: bool) -> bool:
        """Record that an answer is about to tell of a grant, or that it has arrived.

        From the first on somebody may know of the grant, so it outlives the process that got it.
        With either, nothing is armed any more that was to give it back for want of a listener.

        Returns:
            Whether the acquisition still is the current one, and held.
        """
        self._state.db.execute("DELETE FROM timer WHERE handle = ?", (handle.id,))
        self.count_lost_replies(handle, 0 if confirmed else 1)
        return self.announce(handle, guard=None, runner=None)

    def renewed(self, handle: Handle, wall: float) -> None:
        """Record a heartbeat."""
        self._state.db.execute(
            "UPDATE lease SET renew_time = ? WHERE handle = ?", (wall, handle.id)
        )

    def drop(self, handle: Handle, names: Sequence[str], *, now: float, lost: bool = False) -> None:
        """Take names out of a record; with the last one the handle is released.

        Args:
            handle: As just loaded, in this transaction.
            names: What it holds no more.
            now: CLOCK_BOOTTIME, seconds.
            lost: The names went away without having been given back.
        """
        gone = set(names)
        left = [name for name in handle.names if name not in gone]
        if not left:
            self.release(handle, now=now, lost=lost or handle.lost)
            return
        for table in ("lease", "timer"):
            self._state.db.executemany(
                f"DELETE FROM {table} WHERE handle = ? AND name = ?",
                [(handle.id, name) for name in gone],
            )
        if lost:
            self._state.db.execute("UPDATE handle SET lost = 1 WHERE id = ?", (handle.id,))
        self._state.stage_names(handle.id, left)

    def release(self, handle: Handle, *, now: float, lost: bool = False) -> None:
        """Record that a handle holds nothing and waits for nothing."""
        self._clear(handle.id)
        self._unlink_pipes_of_the_dead(handle)
        self._state.db.execute(
            "UPDATE handle SET state = 'released', waiter = NULL, runner = NULL, released_at = ?, "
            "lost = ? WHERE id = ?",
            (now, lost, handle.id),
        )

    def forget(self, handle_id: str, acquisition: int) -> None:
        """Remove the record, its names file, and the pipe that a killed `run` may have left.

        Nothing happens when the handle has moved on from that acquisition.
        """
        deleted = self._state.db.execute(
            "DELETE FROM handle WHERE id = ? AND acquisition = ?", (handle_id, acquisition)
        )
        if deleted.rowcount:
            self._clear(handle_id)
            unlink(self._state.runner_pipe(handle_id))
            unlink(self._state.cancel_pipe(handle_id, acquisition))
            self._state.stage_names(handle_id, None)

    def purge(self, *, now: float, limit: int) -> None:
        """Forget released records that nobody can want any more, looking at a few at a time.

        A released record stays as long as its guard lives, so that `reacquire` works; without a
        guard it stays for a day.
        """
        (cursor,) = self._state.db.execute("SELECT purge_cursor FROM meta").fetchone()
        rows = self._state.db.execute(
            "SELECT id, acquisition, guard, released_at FROM handle WHERE state = 'released' "
            "AND id > ? ORDER BY id LIMIT ?",
            (cursor, limit),
        ).fetchall()
        for handle_id, acquisition, guard, released_at in rows:
            if guard is None:
                over = now - released_at >= KEEP_UNGUARDED_SECONDS
            else:
                over = is_dead(parse_process(guard))
            if over:
                self.forget(handle_id, acquisition)
        cursor_now = rows[-1][0] if len(rows) == limit else ""
        if cursor_now != cursor:
            self._state.db.execute("UPDATE meta SET purge_cursor = ?", (cursor_now,))

    def _unlink_pipes_of_the_dead(self, handle: Handle) -> None:
        # One that lives takes it away itself; until then it may have to be told of a loss. One that
        # is just dying may leave its pipe to the next tidying.
        if is_dead(handle.runner):
            unlink(self._state.runner_pipe(handle.id))
        if is_dead(handle.waiter):
            unlink(self._state.cancel_pipe(handle.id, handle.acquisition))

    def _record(self, handle: Handle, leases: Sequence[Lease]) -> None:
        (first,) = self._state.db.execute(
            "SELECT coalesce(max(position), 0) + 1 FROM lease WHERE handle = ?", (handle.id,)
        ).fetchone()
        self._state.db.executemany(
            "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    handle.id,
                    lease.name,
                    position,
                    lease.fence,
                    lease.ticket,
                    lease.grant,
                    lease.acquire_time,
                    lease.renew_time,
                    lease.lease_transitions,
                )
                for position, lease in enumerate(leases, start=first)
            ],
        )

    def _clear(self, handle_id: str) -> None:
        self._state.db.execute("DELETE FROM lease WHERE handle = ?", (handle_id,))
        self._state.db.execute("DELETE FROM timer WHERE handle = ?", (handle_id,))
        self._state.stage_names(handle_id, ())

    def _select(self, where: str, *values: object) -> list[Handle]:
        rows = self._state.query(f"SELECT {_COLUMNS}, {_RELEASE_AT} FROM handle {where}", *values)
        return [self._handle(row) for row in rows]

    def _handle(self, row: tuple[object, ...]) -> Handle:
        request = Request(
            type=str(row[2]),
            count=int(str(row[3])),
            name=_text(row[4]),
            ttl_seconds=_number(row[5]),
            release_after_seconds=_number(row[6]),
            scope=cast("Scope", str(row[7])),
            labels=parse_labels(str(row[8])),
        )
        handle_id = str(row[0])
        return Handle(
            id=handle_id,
            backend=str(row[1]),
            request=request,
            owner=str(row[9]),
            holder_identity=str(row[10]),
            state=cast("HandleState", str(row[11])),
            acquisition=int(str(row[12])),
            leases=self._leases(handle_id, str(row[10]), request),
            guard=_process(row[13]),
            waiter=_process(row[14]),
            runner=_process(row[15]),
            shared_dir=_text(row[16]),
            release_at=_number(row[21]),
            lost=bool(row[17]),
            settings=str(row[18]),
            lost_replies=int(str(row[19])),
            cancelled=bool(row[20]),
        )

    def _leases(self, handle_id: str, identity: str, request: Request) -> tuple[Lease, ...]:
        rows = self._state.query(
            "SELECT name, fence, ticket, grant_number, acquire_time, renew_time, "
            "lease_transitions FROM lease WHERE handle = ? ORDER BY position",
            handle_id,
        )
        return tuple(
            Lease(
                name=name,
                fence=fence,
                ticket=ticket,
                grant=grant,
                holder_identity=identity,
                acquire_time=acquire_time,
                renew_time=renew_time,
                lease_duration_seconds=request.ttl_seconds,
                lease_transitions=transitions,
                labels=request.labels,
            )
            for name, fence, ticket, grant, acquire_time, renew_time, transitions in rows
        )


def is_watched(handle: Handle, *, on_server: bool) -> bool:
    """Tell whether the keeper has something to do for this handle while it isn't released.

    An acquisition from a server needs it from the start: should its process be killed, no other
    waiter of ours watches it.

    Args:
        handle: As it is, or is about to be.
        on_server: Its leases live on a server; counts only while it is acquired.
    """
    delayed = handle.request.release_after_seconds is not None
    under_way = on_server and handle.waiter is not None
    followed = handle.guard is not None or handle.runner is not None
    return followed or delayed or under_way or renews_itself(handle)


def is_served(handle: Handle) -> bool:
    """Tell whether a handle was made for a client of `leasectl serve`."""
    return any(name == SERVED_LABEL for name, _ in handle.request.labels)


def renews_itself(handle: Handle) -> bool:
    """Tell whether a ttl is renewed without the holder's doing, by its `run` or the keeper.

    Leases of scope ``test`` are to outlive the step and its keeper, so nobody renews them.
    """
    return handle.request.ttl_seconds is not None and handle.request.scope == "step"


def _encode(process: Process | None) -> str | None:
    return None if process is None else process.encode()


def _process(value: object) -> Process | None:
    return None if value is None else parse_process(str(value))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))
