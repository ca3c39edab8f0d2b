"""Changes of a held handle: ttl, renewal, answer, loss.

And how long it has gone on.

Each of these belongs inside `State.transaction`.
"""

from __future__ import annotations

from typing import Literal

from leasectl.model import Handle
from leasectl.state import handle_rows, rows
from leasectl.state.directory import State
from leasectl.state.handles import Handles, is_watched


def count_lost_replies(state: State, handle: Handle, number: int) -> None:
    """Record how many answers of a server are missing that may have carried a grant."""
    state.db.execute("UPDATE handle SET lost_replies = ? WHERE id = ?", (number, handle.id))


def note_answer(state: State, handle: Handle, *, confirmed: bool) -> bool:
    """Record that an answer is about to tell of a grant, or that it has arrived.

    From the first on somebody may know of the grant, so it outlives the process that got it.
    With either, nothing is armed any more that was to give it back for want of a listener.

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
        handle: Whose.
        seconds: After how long.
        between: As `Request.release_between_seconds`.
    """
    state.db.execute(
        "UPDATE handle SET release_after_seconds = ?, release_between = ? WHERE id = ?",
        (seconds, rows.encode_range(between), handle.id),
    )


def change_ttl(state: State, handle: Handle, seconds: float, *, explicit: bool) -> None:
    """Record another ttl, and whether that one was asked for.

    Args:
        state: The opened state directory.
        handle: As just loaded; nothing happens when it has moved on from that acquisition.
        seconds: The ttl.
        explicit: As `Handle.explicit_ttl`.
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
    """Record who has taken a lease of a handle away by force, and why.

    Args:
        state: The opened state directory.
        handle: Nothing happens when it has moved on from that acquisition.
        reason: For people.
    """
    state.db.execute(
        "UPDATE handle SET lost_reason = ? WHERE id = ? AND acquisition = ?",
        (reason, handle.id, handle.acquisition),
    )


def seconds_since(
    state: State, handle_id: str, what: Literal["queued", "granted"], *, now: float
) -> float | None:
    """How long ago a handle's request was made, or granted; None where nobody knows.

    Args:
        state: The opened state directory.
        handle_id: Which.
        what: Which of that.
        now: CLOCK_BOOTTIME, seconds.
    """
    rows = state.query(
        "SELECT queued_at AS queued, granted_at AS granted FROM handle WHERE id = ?", handle_id
    )
    return next((now - row[what] for row in rows if row[what]), None)
