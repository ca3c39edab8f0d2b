"""What to do next, and when to look again: a pure function of the facts.

Whoever calls it looks, does what it says, and looks again when it says or something has changed.
It remembers nothing, waits for nothing and tries nothing twice: what has failed is wanted again by
the next look, since what was to be changed is as it was. All that has to be known stands at the
node and in its lease, so that it doesn't matter who looks, or how often we have died in between.

A maintenance *has begun* when the node says so, by a status or by our cordon mark: both are written
with the lease in hand. It lasts from when the lease was acquired for as long as is asked for. At
its end, the node is uncordoned first and the lease given back last: as long as the cordon is ours,
nobody else can have the lease, except where it ended while nobody of us could look.
"""

from __future__ import annotations

import math

from leasectl.maintenance.facts import (
    LONGEST_DURATION_SECONDS,
    Cordon,
    Lease,
    LeaseWrite,
    NodeWrite,
    Seen,
    Status,
    Step,
    Us,
    Write,
    draining,
    parse_status,
)

# What a node with one of them is under.
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
    """What is to be done, given what is seen.

    Args:
        us: Who we are.
        seen: What the node and its lease show, and when that was.
    """
    return _Look(us, seen).step()


class _Look:
    """One look, as it is judged."""

    def __init__(self, us: Us, seen: Seen) -> None:
        self._us = us
        self._now = seen.now
        self._node = seen.node
        self._wanted = seen.wanted
        self._lease = seen.lease
        self._drain = seen.drain
        self._status = parse_status(seen.node.status)
        self._is_marked = seen.node.marked_by == us.identity
        self._is_ours = self._lease is not None and self._lease.holder == us.identity
        self._has_begun = self._is_marked or self._status in _BEGUN

    def step(self) -> Step:
        if self._wanted is None:
            return self._end("nothing is asked for any more") if self._has_begun else self._forget()
        seconds, theirs = self._wanted.seconds, self._theirs()
        if theirs is not None and self._has_begun:
            return self._end("another has its lease")
        if seconds is None:
            return self._unreadable()
        if theirs is not None:
            return self._wait(theirs)
        if self._lease is None:
            return self._begin("new, recreate" if self._has_begun else "new, create", seconds)
        if self._is_ours:
            return self._own(self._lease, seconds)
        if self._has_begun:
            return self._end("its lease isn't ours any more")
        return self._begin("new, acquired", seconds)

    def _own(self, lease: Lease, seconds: int) -> Step:
        """What follows where the lease is ours, whatever came of it, and a time is asked for."""
        if not lease.duration_seconds:
            return self._begin("new", seconds)
        if lease.owner_uid != self._node.uid or (self._status == "ended" and not self._is_marked):
            return self._begin("new, stale", seconds)
        over_at = self._over_at()
        if over_at is None or over_at <= self._now:
            if self._has_begun:
                return self._end("its time is over")
            return self._begin("new, stale", seconds)
        if lease.duration_seconds != seconds + self._us.padding_seconds:
            return self._update(lease, seconds)
        return self._go_on(over_at)

    def _theirs(self) -> Lease | None:
        """Another's lease, if it may still be valid."""
        lease = self._lease
        is_theirs = lease is not None and not self._is_ours and lease.may_be_valid()
        return lease if is_theirs else None

    def _over_at(self) -> float | None:
        """When the time is over, of a lease that is ours; None for at once.

        What is asked for counts. It is what the lease has, too, but for a change not yet seen, and
        but for a lease that was made longer only to end in it.
        """
        lease = self._lease
        if lease is None or not self._is_ours or lease.acquired_at is None:
            return None
        seconds = None if self._wanted is None else self._wanted.seconds
        if seconds is None:
            seconds = lease.duration_seconds - self._us.padding_seconds
        return lease.acquired_at + seconds

    # --- before it has begun

    def _wait(self, theirs: Lease) -> Step:
        left = theirs.duration_seconds - theirs.unchanged_seconds
        why = "another has its lease"
        return Step(why, self._noting("waiting"), look_at=self._now + left)

    def _unreadable(self) -> Step:
        """Nothing is begun or changed, but what has begun ends when its time is over."""
        over_at = self._over_at()
        if not self._has_begun:
            return self._refuse(None)
        if over_at is None or over_at <= self._now:
            return self._end("its time is over")
        return self._refuse(over_at)

    def _refuse(self, look_at: float | None) -> Step:
        why = "the request can't be read"
        return Step(why, self._noting("invalid"), look_at=look_at, over_at=look_at)

    def _forget(self) -> Step:
        """Nothing is asked for, and nothing had begun."""
        writes: list[Write] = []
        back = self._given_back(self._lease)
        if back or self._status in ("waiting", "invalid"):
            writes += self._noting("ended")
        return Step("nothing is asked for", (*writes, *back))

    # --- while it lasts

    def _begin(self, status: Status, seconds: int) -> Step:
        duration = seconds + self._us.padding_seconds
        writes = (self._taking(duration), NodeWrite(status, self._cordon_if_needed()))
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
            why = "its node isn't cordoned" if cordon else "it has its lease"
            return Step(why, (NodeWrite(draining("begins"), cordon),), False, self._now, over_at)
        if self._status == "active":
            return Step("it is under way", (), False, over_at, over_at)
        if self._drain is None:
            return Step("it is to be drained", (), True, soon, over_at)
        if self._drain.left:
            noting = self._noting(draining(self._drain.reason))
            return Step("pods are left", noting, True, soon, over_at)
        return Step("no pods are left", self._noting("active"), False, over_at, over_at)

    # --- its end

    def _end(self, why: str) -> Step:
        """Uncordon, if the cordon is ours, in a time in which the lease is ours; then give it back.

        If another has the lease by then, the node is theirs as it stands.
        """
        if self._theirs() is not None:
            cordon: Cordon | None = "disown" if self._is_marked else None
            return Step(why, (NodeWrite("ended", cordon, removes_request=True),))
        cordon = None
        held, holding = self._lease, []
        if self._is_marked:
            cordon = "uncordon" if self._node.is_unschedulable else "disown"
        if cordon == "uncordon" and not self._has_time_to_end():
            prolonged = self._prolonged()
            held, holding = prolonged.lease, [prolonged]
        ending = NodeWrite("ended", cordon, removes_request=True)
        return Step(why, (*holding, ending, *self._given_back(held)))

    def _has_time_to_end(self) -> bool:
        ends_at = self._lease.ends_at if self._lease is not None and self._is_ours else None
        return ends_at is not None and self._now + self._us.end_seconds <= ends_at

    def _prolonged(self) -> LeaseWrite:
        """Our lease, with time to end in: acquired when it was, and so over all the same."""
        lease, padding = self._lease, self._us.padding_seconds
        if lease is None or not self._is_ours or lease.acquired_at is None:
            return self._taking(padding)
        if not lease.duration_seconds or lease.owner_uid != self._node.uid:
            return self._taking(padding)
        duration = math.ceil(self._now - lease.acquired_at) + padding
        if duration > LONGEST_DURATION_SECONDS:
            return self._taking(padding)
        return LeaseWrite(lease._replace(duration_seconds=duration, renewed_at=self._now), False)

    # --- what is written

    def _taking(self, duration_seconds: int) -> LeaseWrite:
        """The lease as ours, from now on."""
        before = self._lease
        transitions = 0 if before is None else before.transitions + (not self._is_ours)
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
    "new, create": "there is no lease",
    "new, acquired": "another's lease has ended",
    "new": "its lease was given back",
    "new, stale": "its lease is left from before",
    "new, recreate": "its lease is gone",
    "updated": "another time is asked for",
}
