"""The names in use, and those that are wanted back.

Both are decided here, under one lock: a name in use can't become ready to be given back, and a
ready name can't be used. The rows belong to one acquisition, and are void for any other. Every
method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leasectl.model import Handle, ReleaseTarget
from leasectl.state import handles
from leasectl.state.directory import State
from leasectl.state.handles import is_watched
from leasectl.state.rows import insert


class SeenMark(NamedTuple):
    """A mark that was seen at a lease: it is wanted back.

    Args:
        id: Of the mark, unique.
        asked_by: Who wants it, for people.
        ends_at: When the mark ends, counted from when it was first seen; CLOCK_BOOTTIME.
        is_ready: The answer is, or is about to be, that the lease can be freed.
    """

    id: str
    asked_by: str
    ends_at: float
    is_ready: bool


class LastUse(NamedTuple):
    """The last use of a name.

    Args:
        acquisition: The number of the handle's acquisition that holds it.
        until: CLOCK_BOOTTIME; None while it is in use.
    """

    acquisition: int
    until: float | None


LastUses = Mapping[tuple[str, str], LastUse]


def last_use(uses: LastUses, claim_key: str | None, name: str) -> LastUse | None:
    """Return when a claimed name was in use last; None for never, and of an earlier claim.

    Args:
        uses: As `Uses.last` returns them.
        claim_key: Of the claim.
        name: The name.
    """
    handle_id, _, acquisition = (claim_key or "").partition("/")
    use = uses.get((handle_id, name))
    return use if use is None or acquisition in ("", str(use.acquisition)) else None


class SeenName(NamedTuple):
    """A name that was seen to be wanted back.

    Args:
        target: The handle and the acquisition that hold it.
        mark: The mark.
    """

    target: ReleaseTarget
    mark: SeenMark


class Uses:
    """The names in use, and the marks seen, of one state directory.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def in_use(self, handle: Handle) -> frozenset[str]:
        """Return the names of a handle that are in use."""
        rows = self._state.query(
            "SELECT name FROM name_in_use WHERE handle = ? AND acquisition = ? AND until IS NULL",
            handle.id,
            handle.acquisition,
        )
        return frozenset(name for (name,) in rows)

    def begin(self, handle: Handle, name: str) -> None:
        """Mark a name as in use, and not ready."""
        row = {"handle": handle.id, "acquisition": handle.acquisition, "name": name}
        insert(self._state.db, "name_in_use", row, replace=True)

    def end(self, handle_id: str, name: str, *, now: float) -> bool:
        """Mark a name as unused from now on (CLOCK_BOOTTIME); return whether it was in use."""
        updated = self._state.db.execute(
            "UPDATE name_in_use SET until = ? WHERE handle = ? AND name = ? AND until IS NULL",
            (now, handle_id, name),
        )
        return updated.rowcount > 0

    def last(self) -> dict[tuple[str, str], LastUse]:
        """Return the last use of each held name, by handle and name; without those never used."""
        rows = self._state.read("SELECT handle, name, acquisition, until FROM name_in_use")
        return {(handle_id, name): LastUse(*use) for handle_id, name, *use in rows}

    def marks(self, handle: Handle) -> dict[str, SeenMark]:
        """Return the marks that were seen at a handle, by name."""
        rows = self._state.query(
            "SELECT name, id, asked_by, ends_at, is_ready FROM mark_seen "
            "WHERE handle = ? AND acquisition = ?",
            handle.id,
            handle.acquisition,
        )
        return {name: _mark(*mark) for name, *mark in rows}

    def ready(self, handle: Handle) -> frozenset[str]:
        """Return the names of a handle that are ready to be given back."""
        return frozenset(name for name, mark in self.marks(handle).items() if mark.is_ready)

    def see(self, handle: Handle, name: str, mark: SeenMark) -> None:
        """Record a mark that was seen, in place of an earlier one of the same name."""
        row = {
            "handle": handle.id,
            "acquisition": handle.acquisition,
            "name": name,
            "id": mark.id,
            "asked_by": mark.asked_by,
            "ends_at": mark.ends_at,
            "is_ready": int(mark.is_ready),
        }
        insert(self._state.db, "mark_seen", row, replace=True)

    def decide(self, handle: Handle, name: str, mark_id: str, *, is_ready: bool) -> bool:
        """Make a name that isn't in use ready, or no longer ready.

        A caller that makes it no longer ready knows that the mark will never say so again.

        Returns:
            Whether it is so now: it has no other mark by now, and isn't in use.
        """
        if is_ready and name in self.in_use(handle):
            return False
        updated = self._state.db.execute(
            "UPDATE mark_seen SET is_ready = ? WHERE handle = ? AND acquisition = ? AND name = ? "
            "AND id = ?",
            (is_ready, handle.id, handle.acquisition, name, mark_id),
        )
        return updated.rowcount == 1

    def forget(self, handle: Handle, name: str, mark_id: str) -> None:
        """Forget a mark that is gone for good."""
        self._state.db.execute(
            "DELETE FROM mark_seen WHERE handle = ? AND acquisition = ? AND name = ? AND id = ?",
            (handle.id, handle.acquisition, name, mark_id),
        )

    def have_watched(self, handle_ids: Iterable[str]) -> None:
        """Mark handles as watched by the keeper until they are released."""
        self._state.db.executemany(
            "UPDATE handle SET watched = 1 WHERE id = ?", [(each,) for each in handle_ids]
        )

    def let_go(self, handle: Handle) -> None:
        """Let the keeper no longer look after a handle that it watched only for marks.

        Args:
            handle: As just loaded, in this transaction.
        """
        if is_watched(handle, remote=True):
            return
        self._state.db.execute(
            f"UPDATE handle SET watched = 0 WHERE id = ? AND NOT {handles.IS_SEEN_TO}",
            (handle.id,),
        )

    def all_seen(self) -> list[SeenName]:
        """Return all names with a mark that was seen."""
        rows = self._state.read(
            "SELECT handle, acquisition, name, id, asked_by, ends_at, is_ready FROM mark_seen"
        )
        return [
            SeenName(ReleaseTarget(handle_id, acquisition, (name,)), _mark(*mark))
            for handle_id, acquisition, name, *mark in rows
        ]

    def of_nobody(self) -> list[str]:
        """Return ids with uses or marks of names that no such handle holds."""
        rows = self._state.query(
            "SELECT DISTINCT handle FROM (SELECT handle, acquisition, name FROM name_in_use "
            "UNION SELECT handle, acquisition, name FROM mark_seen) AS said "
            "WHERE NOT EXISTS (SELECT 1 FROM lease JOIN handle ON handle.id = lease.handle "
            "WHERE lease.handle = said.handle AND lease.name = said.name "
            "AND handle.acquisition = said.acquisition)"
        )
        return [handle_id for (handle_id,) in rows]

    def forget_of_nobody(self, handle_id: str) -> None:
        """Forget uses and marks of names that a handle doesn't hold."""
        for table in ("name_in_use", "mark_seen"):
            self._state.db.execute(
                f"DELETE FROM {table} AS said WHERE handle = ? AND NOT EXISTS (SELECT 1 FROM lease "
                "JOIN handle ON handle.id = lease.handle AND handle.acquisition = said.acquisition "
                "WHERE lease.handle = said.handle AND lease.name = said.name)",
                (handle_id,),
            )


def _mark(mark_id: str, asked_by: str, ends_at: float, is_ready: int) -> SeenMark:
    return SeenMark(mark_id, asked_by, ends_at, bool(is_ready))
