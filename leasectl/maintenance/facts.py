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
    """Who we are: the same for all replicas, and after a restart.

    Args:
        identity: The holder in our leases, and in our cordon marks.
        padding_seconds: How much longer than it was asked for a lease is: in this time, a
            maintenance is ended.
        end_seconds: How long it may take to uncordon a node: with less time left in the lease, it
            is made longer first, so that nobody else can have it by then.
        pause_seconds: How long to wait between two tries to evict what is left.
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
    """The lease of a node: the fields of a LeaseSpec, with the API's meaning.

    Args:
        holder: The identity of who has it, or had it last; empty for nobody.
        duration_seconds: 0 where the API has none: it was given back.
        acquired_at: When this holder got it, by its own clock; None if it doesn't say.
        renewed_at: When it was last written, the same.
        transitions: How often the holder has changed.
        owner_uid: Of the node that it was made for.
        unchanged_seconds: For how long we have seen it just like this, by a clock of our own that
            doesn't jump. Nothing else is known of whether another's lease is still valid.
    """

    holder: str
    duration_seconds: int
    acquired_at: float | None
    renewed_at: float | None = None
    transitions: int = 0
    owner_uid: str = ""
    unchanged_seconds: float = 0.0

    def may_be_valid(self) -> bool:
        """Whether another's lease has to be taken for valid still."""
        return bool(self.holder) and self.unchanged_seconds < self.duration_seconds

    @property
    def ends_at(self) -> float | None:
        """When one of ours ends; None if it doesn't say when it began."""
        return None if self.acquired_at is None else self.acquired_at + self.duration_seconds


class Node(NamedTuple):
    """What a node shows.

    Args:
        uid: Of this node, not of one that had its name before.
        status: What is noted as its status, or empty.
        is_unschedulable: It is cordoned, by whomever.
        marked_by: The identity in its cordon mark: whose the cordon is. Empty without a mark.
        window: The window that has begun; None for none.
    """

    uid: str
    status: str = ""
    is_unschedulable: bool = False
    marked_by: str = ""
    window: Window | None = None


class Drain(NamedTuple):
    """How far the drain of this maintenance has come.

    Args:
        left: How many pods are left that have to go.
        reason: Why they are still there, for people.
    """

    left: int
    reason: str = ""


class Seen(NamedTuple):
    """All that a look shows.

    Args:
        node: The node.
        wanted: What it asks for; None for nothing.
        lease: Its lease; None if there is none.
        drain: What is known of the drain; None for nothing, as after a restart.
        now: When it was looked.
    """

    node: Node
    wanted: Wanted | None
    lease: Lease | None
    drain: Drain | None
    now: float


class LeaseWrite(NamedTuple):
    """The lease is to be as this says, if it is still as it was seen.

    Args:
        lease: How it is to be.
        creates: There was none, and there must be none.
    """

    lease: Lease
    creates: bool


Cordon = Literal["cordon", "uncordon", "disown"]


class NodeWrite(NamedTuple):
    """One change of the node, if it is still as it was seen: all of it, or nothing.

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
    """What is to be done now.

    Args:
        why: What was found, in a few words.
        writes: One after the other. The first that fails is the last, then it is looked again.
        drains: Evict what is left, after that.
        look_at: When to look again, if nothing that is seen changes before; None for not at all.
        over_at: When the time of a maintenance that has begun is over: that look is urgent.
    """

    why: str
    writes: tuple[Write, ...] = ()
    drains: bool = False
    look_at: float | None = None
    over_at: float | None = None

    @property
    def status(self) -> str | None:
        """The status that it writes, if it does."""
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
    """Read a status; None for none, and for what we would never have written."""
    found = "draining" if text.startswith("draining: ") else text
    return next((each for each in STATUSES if each == found), None)


def draining(reason: str) -> str:
    """The status of a node whose drain isn't complete.

    Args:
        reason: Why not.
    """
    return f"draining: {printable(reason, longest=_LONGEST_REASON)}"


class Observed:
    """What has been seen of leases, by name."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Lease, float]] = {}

    def unchanged_seconds(self, name: str, lease: Lease, now: float) -> float:
        """For how long a lease has been like this, as it is seen once more.

        Args:
            name: Of the lease.
            lease: As it is, whatever that says of this time.
            now: On the elapsed clock.
        """
        lease = lease._replace(unchanged_seconds=0.0)
        before, since = self._since.get(name, (None, now))
        if before != lease:
            since = now
        self._since[name] = (lease, since)
        return now - since
