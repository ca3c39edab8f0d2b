"""A node, its Lease, and what was observed of them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Union

from leasectl.errors import InvalidRequest
from leasectl.text.durations import parse_duration
from leasectl.text.wording import printable

PADDING_SECONDS = 30
# leaseDurationSeconds and leaseTransitions are numbers of 32 bits.
LARGEST_INT32 = 2**31 - 1

Status = Literal[
    "waiting",
    "new, create",
    "new, acquired",
    "new",
    "updated",
    "new, stale",
    "new, recreate",
    "draining",
    "active",
    "ended",
    "invalid",
]
STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
_LONGEST_REASON = 200


class Us(NamedTuple):
    """Our identity and settings, the same for all replicas and after a restart.

    Args:
        identity: The holder in our Leases, cordon marks and records of windows.
        padding_seconds: How much longer than the window its Lease lasts. The window is ended in
            this time.
        end_seconds: How long it may take to uncordon a node. A Lease that ends sooner is prolonged
            first, so that no other holder can acquire it before.
        pause_seconds: The pause between two attempts to evict the pods that are left.
    """

    identity: str
    padding_seconds: int = PADDING_SECONDS
    end_seconds: int = 10
    pause_seconds: float = 5.0


class Wanted(NamedTuple):
    """The request on a node.

    Args:
        seconds: The requested duration; None if it can't be read.
        word: The word that tells this request from any other one on the same node. Requests that
            another tool writes may have none.
    """

    seconds: int | None
    word: str = ""


class Window(NamedTuple):
    """The record, on a node, of a window that has begun and hasn't been ended.

    Args:
        identity: The holder that began it.
        word: The word of the request that it was begun for.
    """

    identity: str
    word: str


class Lease(NamedTuple):
    """The Lease of a node: the fields of a LeaseSpec, with the API's meaning.

    Args:
        holder: The identity of the holder, or of the last one; empty for none.
        duration_seconds: 0 if the API has none: the Lease was given back.
        acquired_at: When this holder acquired it, by the holder's clock; None if it isn't given.
        renewed_at: When this holder last wrote it, by the same clock.
        transitions: 1 in a new Lease; then it counts changes of the holder.
        owner_uid: The uid of the node that owns it.
        unchanged_seconds: How long we have seen it unchanged, by our own monotonic clock. Only this
            decides whether another holder's Lease is still valid.
    """

    holder: str
    duration_seconds: int
    acquired_at: float | None
    renewed_at: float | None = None
    transitions: int = 0
    owner_uid: str = ""
    unchanged_seconds: float = 0.0

    def may_be_valid(self) -> bool:
        """Return whether another holder's Lease must count as valid."""
        return bool(self.holder) and self.unchanged_seconds < self.duration_seconds

    @property
    def ends_at(self) -> float | None:
        """When a Lease of ours expires; None if it has no acquire time."""
        return None if self.acquired_at is None else self.acquired_at + self.duration_seconds


class Node(NamedTuple):
    """The state of a node.

    Args:
        uid: The uid of this node, which differs from that of an earlier node with its name.
        status: Its status; empty for none.
        is_unschedulable: It is cordoned, no matter by whom.
        marked_by: The identity in its cordon mark, which owns the cordon; empty for no mark.
        window: The window that has begun; None for none.
    """

    uid: str
    status: str = ""
    is_unschedulable: bool = False
    marked_by: str = ""
    window: Window | None = None


class Drain(NamedTuple):
    """The progress of the drain in this window.

    Args:
        left: The number of pods that are still to be evicted.
        reason: Why they are still there, for people.
    """

    left: int
    reason: str = ""


class Seen(NamedTuple):
    """The facts of one look.

    Args:
        node: The node.
        wanted: Its request; None for none.
        lease: Its Lease; None for none.
        drain: The progress of its drain; None if it is unknown, as after a restart.
        now: The time of the look, in seconds since the epoch.
    """

    node: Node
    wanted: Wanted | None
    lease: Lease | None
    drain: Drain | None
    now: float


class LeaseWrite(NamedTuple):
    """One write of the Lease, guarded by the version that was read.

    Args:
        lease: The new Lease.
        creates: There was no Lease, and the write fails if there is one now.
    """

    lease: Lease
    creates: bool


Cordon = Literal["cordon", "uncordon", "disown"]


class NodeWrite(NamedTuple):
    """One write of the node, guarded by the version that was read.

    Args:
        status: The new status; empty removes it.
        cordon: ``cordon`` the node and add our mark, ``uncordon`` it and remove the mark, or
            ``disown`` the cordon: remove only the mark. None leaves both as they are.
        begins: Record that the window of the request with this word has begun; None records
            nothing.
        ends: Remove the record of our window.
        removes_request: Remove the request.
    """

    status: str
    cordon: Cordon | None = None
    begins: str | None = None
    ends: bool = False
    removes_request: bool = False


Write = Union[LeaseWrite, NodeWrite]


class Step(NamedTuple):
    """What to do after one look.

    Args:
        why: The reason, in a few words.
        writes: The writes, in this order. After the first one that fails, look again.
        drains: Evict the pods that are left, after the writes.
        look_at: When to look again if nothing changes before; None for never.
        over_at: When the window is over; the look at that time is urgent.
    """

    why: str
    writes: tuple[Write, ...] = ()
    drains: bool = False
    look_at: float | None = None
    over_at: float | None = None

    @property
    def status(self) -> str | None:
        """The status that it writes; None if it writes no node."""
        return next((each.status for each in self.writes if isinstance(each, NodeWrite)), None)


def parse_wanted(text: str | None, word: str = "") -> Wanted | None:
    """Parse a request.

    Args:
        text: The requested duration, more than 0; fractions of a second are rounded up. None if
            nothing is requested.
        word: The word of the request.
    """
    if text is None:
        return None
    try:
        seconds = math.ceil(parse_duration(text.strip()))
    except InvalidRequest:
        seconds = 0
    return Wanted(seconds or None, word)


def parse_status(text: str) -> Status | None:
    """Parse a status; None for none, and for a text that isn't one."""
    found = "draining" if text.startswith("draining: ") else text
    return next((each for each in STATUSES if each == found), None)


def draining(reason: str) -> str:
    """Return the status of a node whose drain isn't complete.

    Args:
        reason: Why it isn't.
    """
    return f"draining: {printable(reason, longest=_LONGEST_REASON)}"


class Observed:
    """Since when Leases have been seen unchanged, by name."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Lease, float]] = {}

    def observe(self, name: str, lease: Lease, now: float) -> Lease:
        """Note a Lease as it is now; return it with how long it has been seen unchanged.

        Args:
            name: The name of the Lease.
            lease: The Lease; its own ``unchanged_seconds`` is ignored.
            now: The time on the elapsed clock.
        """
        lease = lease._replace(unchanged_seconds=0.0)
        before, since = self._since.get(name, (None, now))
        if before != lease:
            since = now
        self._since[name] = (lease, since)
        return lease._replace(unchanged_seconds=now - since)
