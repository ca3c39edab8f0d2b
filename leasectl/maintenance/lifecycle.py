"""Decide the next step and the time of the next look: a pure function of the facts.

The controller looks at a node and its Lease, does what this function returns, and looks again when
the function says so or when something has changed. The function remembers nothing, waits for
nothing and retries nothing: the next look asks again for a write that failed. Everything that it
needs is on the node and in the Lease. It doesn't matter which replica looks, or how often the
controller was killed in between.

A *window* begins with two writes: the Lease is acquired, then the node gets the status, our cordon
mark and the record of the window. The record names the holder and the word of the request. A
request whose word isn't the recorded one has no window yet. It gets one with its full time, even if
the controller saw neither the end nor the cancellation of the request before it.

A window lasts from the Lease's ``acquireTime`` for the requested duration. At its end the node is
uncordoned first and the Lease is given back last. No other holder can have the Lease while the
cordon is ours, unless the Lease expired while no controller could reach the API.
"""

from __future__ import annotations

import math

from leasectl.maintenance.facts import (
    LARGEST_INT32,
    Cordon,
    Lease,
    LeaseWrite,
    NodeWrite,
    Seen,
    Status,
    Step,
    Us,
    Window,
    draining,
    parse_status,
)

# The statuses of a window that has begun.
_BEGUN: tuple[Status, ...] = (
    "new, create",
    "new, acquired",
    "new",
    "updated",
    "new, stale",
    "new, recreate",
    "draining",
    "active",
)


def next_step(us: Us, seen: Seen) -> Step:
    """Return the next step.

    Args:
        us: Our identity and settings.
        seen: The node and its Lease, and when they were read.
    """
    return _Look(us, seen).step()


class _Look:
    """One look at a node and its Lease."""

    def __init__(self, us: Us, seen: Seen) -> None:
        self._us = us
        self._now = seen.now
        self._node = seen.node
        self._wanted = seen.wanted
        self._lease = seen.lease
        self._drain = seen.drain
        self._status = parse_status(seen.node.status)
        window = seen.node.window
        self._is_marked = seen.node.marked_by == us.identity
        self._is_ours = self._lease is not None and self._lease.holder == us.identity
        self._is_recorded = window is not None and window.identity == us.identity
        self._has_begun = self._is_marked or self._is_recorded
        # Whether the window that has begun is the one that is requested now.
        self._is_current = seen.wanted is not None and window == Window(
            us.identity, seen.wanted.word
        )

    def step(self) -> Step:
        if self._wanted is None:
            return self._end("the request was cancelled") if self._has_begun else self._forget()
        seconds, theirs = self._wanted.seconds, self._theirs()
        if seconds is None:
            return self._unreadable(theirs)
        if not self._is_current:
            return self._first(seconds) if theirs is None else self._wait(theirs)
        if theirs is not None:
            return self._end("another holder has the Lease")
        if self._lease is None:
            return self._begin("new, recreate", seconds)
        if not self._is_ours:
            return self._end("another holder has had the Lease")
        return self._own(self._lease, seconds)

    def _first(self, seconds: int) -> Step:
        """Begin the window of a request that has none yet."""
        if self._lease is None:
            return self._begin("new, create", seconds)
        if not self._is_ours:
            return self._begin("new, acquired", seconds)
        return self._begin("new, stale" if self._lease.duration_seconds else "new", seconds)

    def _own(self, lease: Lease, seconds: int) -> Step:
        """Continue the window of this request, which has our Lease, or end it."""
        if not lease.duration_seconds:
            return self._begin("new", seconds)
        if lease.owner_uid != self._node.uid:
            return self._begin("new, stale", seconds)
        over_at = self._over_at()
        if over_at is None or over_at <= self._now:
            return self._end("its time is over")
        if lease.duration_seconds != seconds + self._us.padding_seconds:
            return self._update(lease, seconds)
        return self._go_on(over_at)

    def _theirs(self) -> Lease | None:
        """Return another holder's Lease if it may still be valid."""
        lease = self._lease
        is_theirs = lease is not None and not self._is_ours and lease.may_be_valid()
        return lease if is_theirs else None

    def _over_at(self) -> float | None:
        """Return when the window in our Lease is over; None if it can't be known.

        The requested duration counts. The Lease has another one if a change wasn't seen yet, or if
        the Lease was only prolonged to end the window in it.
        """
        lease = self._lease
        if lease is None or not self._is_ours or lease.acquired_at is None:
            return None
        seconds = None if self._wanted is None else self._wanted.seconds
        if seconds is None:
            seconds = lease.duration_seconds - self._us.padding_seconds
        return lease.acquired_at + seconds

    # --- before the window has begun

    def _wait(self, theirs: Lease) -> Step:
        """Wait until another holder's Lease has expired; end what is left of our last window."""
        left = theirs.duration_seconds - theirs.unchanged_seconds
        writes = self._noting("waiting")
        if self._has_begun:
            cordon: Cordon | None = "disown" if self._is_marked else None
            writes = (NodeWrite("waiting", cordon, ends=self._is_recorded),)
        return Step("another holder has the Lease", writes, look_at=self._now + left)

    def _unreadable(self, theirs: Lease | None) -> Step:
        """Begin and change nothing, but end a window that is over."""
        if not self._has_begun:
            return self._refuse(None)
        if theirs is not None:
            return self._end("another holder has the Lease")
        over_at = self._over_at()
        if over_at is None or over_at <= self._now:
            return self._end("its time is over")
        return self._refuse(over_at)

    def _refuse(self, look_at: float | None) -> Step:
        why = "the request can't be read"
        return Step(why, self._noting("invalid"), look_at=look_at, over_at=look_at)

    def _forget(self) -> Step:
        """Remove the status of a request whose window never began, and give our Lease back.

        The statuses of a window are left to the holder that recorded it.
        """
        is_nobodys = self._node.window is None and not self._node.marked_by
        is_old = self._status in ("waiting", "invalid") or (is_nobodys and self._status in _BEGUN)
        writes = self._noting("") if is_old else ()
        return Step("the request was cancelled", (*writes, *self._given_back(self._lease)))

    # --- while the window lasts

    def _begin(self, status: Status, seconds: int) -> Step:
        word = "" if self._wanted is None else self._wanted.word
        writes = (
            self._taking(seconds + self._us.padding_seconds),
            NodeWrite(status, self._cordon_if_needed(), begins=word),
        )
        return Step(_WHY[status], writes, look_at=self._now)

    def _update(self, lease: Lease, seconds: int) -> Step:
        duration = seconds + self._us.padding_seconds
        writes = (
            LeaseWrite(lease._replace(duration_seconds=duration, renewed_at=self._now), False),
            NodeWrite("updated", self._cordon_if_needed()),
        )
        return Step(_WHY["updated"], writes, look_at=self._now)

    def _go_on(self, over_at: float) -> Step:
        cordon = self._cordon_if_needed()
        soon = min(over_at, self._now + self._us.pause_seconds)
        if cordon or self._status not in _BEGUN:
            why = "the node isn't cordoned" if cordon else "the window has begun"
            return Step(why, (NodeWrite(draining("begins"), cordon),), False, self._now, over_at)
        if self._status == "active":
            return Step("the window is open", (), False, over_at, over_at)
        if self._drain is None:
            return Step("the node must be drained", (), True, soon, over_at)
        if self._drain.left:
            noting = self._noting(draining(self._drain.reason))
            return Step("pods are left", noting, True, soon, over_at)
        return Step("no pods are left", self._noting("active"), False, over_at, over_at)

    # --- the end of the window

    def _end(self, why: str) -> Step:
        """Uncordon the node if the cordon is ours, while the Lease is ours; then give it back.

        If another holder has the Lease by then, leave the cordon to that holder.
        """
        if self._theirs() is not None:
            cordon: Cordon | None = "disown" if self._is_marked else None
            return Step(why, (self._ending(cordon),))
        cordon = None
        held, holding = self._lease, []
        if self._is_marked:
            cordon = "uncordon" if self._node.is_unschedulable else "disown"
        if cordon == "uncordon" and not self._has_time_to_end():
            prolonged = self._prolonged()
            held, holding = prolonged.lease, [prolonged]
        return Step(why, (*holding, self._ending(cordon), *self._given_back(held)))

    def _ending(self, cordon: Cordon | None) -> NodeWrite:
        return NodeWrite("ended", cordon, ends=self._is_recorded, removes_request=True)

    def _has_time_to_end(self) -> bool:
        ends_at = self._lease.ends_at if self._lease is not None and self._is_ours else None
        return ends_at is not None and self._now + self._us.end_seconds <= ends_at

    def _prolonged(self) -> LeaseWrite:
        """Return our Lease with enough time to end in; if possible with the same acquireTime."""
        lease, padding = self._lease, self._us.padding_seconds
        if lease is None or not self._is_ours or lease.acquired_at is None:
            return self._taking(padding)
        if not lease.duration_seconds or lease.owner_uid != self._node.uid:
            return self._taking(padding)
        duration = math.ceil(self._now - lease.acquired_at) + padding
        if duration > LARGEST_INT32:
            return self._taking(padding)
        return LeaseWrite(lease._replace(duration_seconds=duration, renewed_at=self._now), False)

    # --- writes

    def _taking(self, duration_seconds: int) -> LeaseWrite:
        """Acquire the Lease now."""
        before, transitions = self._lease, 1
        if before is not None:
            transitions = min(before.transitions + (not self._is_ours), LARGEST_INT32)
        lease = Lease(
            self._us.identity,
            duration_seconds,
            self._now,
            self._now,
            transitions,
            self._node.uid,
        )
        return LeaseWrite(lease, creates=before is None)

    def _given_back(self, lease: Lease | None) -> tuple[LeaseWrite, ...]:
        if lease is None or lease.holder != self._us.identity or not lease.duration_seconds:
            return ()
        return (LeaseWrite(lease._replace(duration_seconds=0, renewed_at=self._now), False),)

    def _noting(self, status: str) -> tuple[NodeWrite, ...]:
        return () if self._node.status == status else (NodeWrite(status),)

    def _cordon_if_needed(self) -> Cordon | None:
        return None if self._node.is_unschedulable else "cordon"


_WHY: dict[Status, str] = {
    "new, create": "there was no Lease",
    "new, acquired": "another holder's Lease has ended",
    "new": "our Lease was given back",
    "new, stale": "our Lease is of an earlier window",
    "new, recreate": "the Lease of this window was deleted",
    "updated": "another duration is requested",
}
