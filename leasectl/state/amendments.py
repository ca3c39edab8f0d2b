"""Changes of a held handle: ttl, renewal, answer, loss; and how long it has gone on.

Each change belongs inside `State.transaction`.
"""

from __future__ import annotations

from typing import Literal

from leasectl.model import Handle
from leasectl.state import handle_rows, rows
from leasectl.state.directory import State
from leasectl.state.handles import Handles, is_watched


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
        f"watched = ? OR {handle_rows.IS_SEEN_TO} WHERE id = ? AND acquisition = ?",
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
