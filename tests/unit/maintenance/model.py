"""A model of a node and its lease, in which the writes of a step are carried out and judged.

Times are small whole numbers. What a write must never do is said where it is carried out: there,
the model knows what is so, while the lifecycle only knows what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Callable, NamedTuple

from leasectl.maintenance.facts import (
    Drain,
    Lease,
    LeaseWrite,
    Node,
    NodeWrite,
    Seen,
    Step,
    Us,
    Wanted,
    Window,
    Write,
    parse_status,
)

US = Us("us", padding_seconds=3, end_seconds=2, pause_seconds=2)
THEM = "them"
HERE, ELSEWHERE = "this node", "one that had its name before"
SHORT, LONG = 1, 3
# The word of the request, and of an earlier one.
WORD, EARLIER = "b", "a"
UNREADABLE = Wanted(None, WORD)
OURS, OURS_EARLIER = Window(US.identity, WORD), Window(US.identity, EARLIER)
THEIRS = Window(THEM, WORD)
LEFT, DRAINED = Drain(1, "a pod"), Drain(0)
# By then all that is asked for is over, and no lease is valid that wasn't made longer.
OLDEST = LONG + US.padding_seconds + 1
THEIR_SECONDS = 2

Lifecycle = Callable[[Us, Seen], Step]


class Wrong(AssertionError):
    """The lifecycle has done something that it never may."""


class World(NamedTuple):
    """All there is: what is seen in it is what is so."""

    wanted: Wanted | None = None
    status: str = ""
    is_cordoned: bool = False
    mark: str = ""
    lease: Lease | None = None
    drain: Drain | None = None
    now: int = 0
    window: Window | None = None

    @property
    def node(self) -> Node:
        return Node(HERE, self.status, self.is_cordoned, self.mark, self.window)

    @property
    def seen(self) -> Seen:
        return Seen(self.node, self.wanted, self.lease, self.drain, self.now)

    @property
    def is_ours(self) -> bool:
        return self.lease is not None and self.lease.holder == US.identity

    @property
    def is_held(self) -> bool:
        """Whether the lease is ours and valid."""
        lease = self.lease
        if lease is None or not self.is_ours or lease.acquired_at is None:
            return False
        return self.now < lease.acquired_at + lease.duration_seconds

    @property
    def is_theirs(self) -> bool:
        """Whether the lease is another's and valid, as far as can be known."""
        lease = self.lease
        return lease is not None and not self.is_ours and lease.may_be_valid()

    @property
    def is_our_cordon(self) -> bool:
        return self.is_cordoned and self.mark == US.identity

    @property
    def has_our_record(self) -> bool:
        return self.window is not None and self.window.identity == US.identity

    @property
    def has_begun(self) -> bool:
        """Whether a window of ours has begun, and hasn't ended yet."""
        return self.mark == US.identity or self.has_our_record

    @property
    def is_readable(self) -> bool:
        return self.wanted is not None and self.wanted.seconds is not None

    @property
    def is_current(self) -> bool:
        """Whether the window that has begun is that of the request."""
        word = None if self.wanted is None else self.wanted.word
        return self.window == (US.identity, word)

    @property
    def over_at(self) -> float | None:
        """When the window that has begun is over, if the lease is ours."""
        if not self.is_ours or self.lease is None or self.lease.acquired_at is None:
            return None
        seconds = self.lease.duration_seconds - US.padding_seconds
        if self.wanted is not None and self.wanted.seconds is not None:
            seconds = self.wanted.seconds
        return self.lease.acquired_at + seconds

    def later(self, by: int) -> World:
        """The same after some time, in which nobody has changed the lease."""
        lease = self.lease
        if lease is not None and not self.is_ours:
            seconds = min(lease.unchanged_seconds + by, lease.duration_seconds)
            lease = lease._replace(unchanged_seconds=seconds)
        return self._replace(lease=lease, now=self.now + by)

    def canonical(self) -> World:
        """The same, told from now: two worlds that differ in nothing but the date are one."""
        lease = self.lease
        if lease is not None and self.is_ours:
            acquired_at, duration = lease.acquired_at, lease.duration_seconds
            renewed_at = None if acquired_at is None else lease.renewed_at
            if acquired_at is not None:
                age = self.now - acquired_at
                left = max(duration - age, -1)
                age = min(age, OLDEST)
                acquired_at = -age
                duration = int(age + left) if duration else 0
            if renewed_at is not None:
                renewed_at = -min(self.now - renewed_at, OLDEST)
            lease = Lease(lease.holder, duration, acquired_at, renewed_at, 0, lease.owner_uid)
        elif lease is not None and lease.transitions:
            lease = lease._replace(transitions=0)
        return self._replace(lease=lease, now=0)


def carry_out(world: World, write: Write, seen: World) -> World | None:
    """The world after a write; None if it is refused, as what it is to change has changed.

    Args:
        world: How things stand.
        write: What is to be written.
        seen: How they stood when whoever writes looked, with what it has written itself since.

    Raises:
        Wrong: It must never do this.
    """
    if isinstance(write, LeaseWrite):
        if _fields(world.lease) != _fields(seen.lease):
            return None
        _judge_lease(world, write)
        return world._replace(lease=write.lease)
    if (world.node, world.wanted) != (seen.node, seen.wanted):
        return None
    _judge_node(world, write)
    after = world._replace(status=write.status)
    if write.begins is not None:
        after = after._replace(window=Window(US.identity, write.begins))
    elif write.ends:
        after = after._replace(window=None)
    if write.cordon is not None:
        mark = US.identity if write.cordon == "cordon" else ""
        after = after._replace(mark=mark)
    if write.cordon in ("cordon", "uncordon"):
        after = after._replace(is_cordoned=write.cordon == "cordon")
    return after._replace(wanted=None) if write.removes_request else after


def _fields(lease: Lease | None) -> Lease | None:
    return None if lease is None else lease._replace(unchanged_seconds=0.0)


def must(holds: bool, rule: str) -> None:
    """Raise `Wrong` where a rule doesn't hold."""
    if not holds:
        raise Wrong(rule)


def _judge_lease(world: World, write: LeaseWrite) -> None:
    before, after = world.lease, write.lease
    must(not world.is_theirs, "another's valid lease is never written")
    must(write.creates == (before is None), "what is there isn't created")
    must(after.holder == US.identity, "a lease that we write is ours")
    must(after.renewed_at is not None, "it is renewed when it is written")
    if after.duration_seconds == 0:
        must(not world.is_our_cordon, "no lease is given back before its node is uncordoned")
    else:
        # With an owner that is gone, somebody may take it away as garbage at any time.
        must(after.owner_uid == HERE, "a lease that is held belongs to its node")
        is_kept = before is not None and before.acquired_at == after.acquired_at
        must(is_kept or after.acquired_at == after.renewed_at, "what is acquired is acquired now")
    transitions = 1
    if before is not None:
        transitions = before.transitions + (before.holder != US.identity)
    must(after.transitions == transitions, "transitions count changes of holder")


def _judge_node(world: World, write: NodeWrite) -> None:
    status = parse_status(write.status)
    must(status is not None or not write.status, "a status is one of those there are")
    begins = status is not None and status.startswith("new")
    must((write.begins is not None) == begins, "what begins is recorded, and nothing else")
    if begins:
        is_asked_for = world.wanted is not None and world.wanted.word == write.begins
        must(is_asked_for, "what begins is what is asked for")
    if write.ends:
        must(world.has_our_record, "nobody else's window is ended")
    if write.cordon == "cordon":
        must(not world.is_cordoned, "what is cordoned isn't cordoned again")
        must(world.is_held, "no node is cordoned without its lease")
    if write.cordon == "uncordon":
        must(world.is_our_cordon, "a node cordoned by somebody else stays so")
        must(world.is_held, "no node is uncordoned that another may have by then")
    if write.cordon == "disown":
        must(world.mark == US.identity, "nobody else's mark is taken away")
    if write.removes_request:
        must(status == "ended", "a request is removed with its end, and by nothing else")
        must(world.is_current or not world.is_readable, "a request is removed after its window")
    if not write.status:
        must(world.wanted is None, "what is asked for has a status")
        must(not world.has_begun, "a window that has begun ends with a status")
        must(world.window is None or parse_status(world.status) in _BEFORE, "nor another's")
    if status in ("ended", "waiting"):
        must(write.ends or not world.has_our_record, "what has ended isn't recorded any more")
        ours = write.cordon is None and world.mark == US.identity
        must(not ours, "what has ended leaves no mark of ours")
    if status == "ended":
        must(world.has_begun, "what never began doesn't end")
        must(write.removes_request or world.wanted is None, "what has ended is asked for no more")
    elif write.status and status not in _BEFORE:
        must(world.is_held, "nothing begins or goes on without its lease")
        must(begins or world.is_current, "nothing goes on that hasn't begun")


# The statuses of a request whose window hasn't begun.
_BEFORE = ("waiting", "invalid")


def judge_step(world: World, step: Step) -> None:
    """Judge what is said to be done, before any of it is.

    Raises:
        Wrong: It is nothing that may be said.
    """
    if step.drains:
        must(world.is_held and world.is_cordoned, "none is drained but under its lease")
        must(world.is_readable and world.is_current, "none is drained unasked")
        must(world.over_at is not None and world.now < world.over_at, "nor after its time")
    if step.status == "invalid":
        must(step.writes == (NodeWrite("invalid"),), "a request that can't be read says no more")
    if world.wanted is not None and not world.is_readable and not world.has_begun:
        said = world.status if step.status is None else step.status
        must(said == "invalid", "what can't be read is said to be so, whoever has the lease")
    if world.is_readable and not world.is_current:
        _judge_first(world, step)
    if not step.writes and step.look_at is not None:
        must(step.look_at > world.now, "nobody looks again and again at what doesn't change")
    lease = world.lease
    is_here = lease is not None and lease.owner_uid == HERE
    is_given_back = lease is not None and not lease.duration_seconds
    goes_on = world.has_begun and (world.is_current or not world.is_readable)
    if goes_on and is_here and not is_given_back and world.over_at is not None:
        is_over = world.now >= world.over_at
        must(step.status == "ended" or not is_over, "what is over ends, whoever of us looks")
        in_time = step.look_at is not None and step.look_at <= world.over_at
        must(in_time or step.status == "ended", "it is looked again by the end at the latest")
        must(step.over_at in (None, world.over_at), "what is said to be the end is it")
        is_known = step.over_at is not None or step.look_at == world.now
        must(is_known or step.status == "ended", "when it ends is said, as that is urgent")
    if step.status == "updated":
        kept = [w.lease.acquired_at for w in step.writes if isinstance(w, LeaseWrite)]
        before = None if lease is None else lease.acquired_at
        must(kept == [before], "another time counts from when the lease was acquired")


def _judge_first(world: World, step: Step) -> None:
    """Judge what is done about a request whose window is still to begin."""
    if world.is_theirs and world.lease is not None:
        left = world.lease.duration_seconds - world.lease.unchanged_seconds
        is_in_time = step.look_at == world.now + left or step.status not in (None, "waiting")
        must(is_in_time, "who waits looks when the other's lease has ended")
        return
    must(str(step.status).startswith("new"), "a request begins a window of its own")
    seconds = world.wanted.seconds if world.wanted is not None else None
    lease = next((w.lease for w in step.writes if isinstance(w, LeaseWrite)), None)
    is_full = lease is not None and lease.duration_seconds - US.padding_seconds == seconds
    must(is_full, "a window has its full time")
    must(lease is not None and lease.acquired_at == world.now, "a window has its full time")
    is_left = world.is_ours and world.lease is not None and world.lease.duration_seconds > 0
    must((step.status == "new, stale") == is_left, "what is left of another window is stale")
    must(step.status != "new, recreate", "a lease is made again only in its window")


def their(duration: int = THEIR_SECONDS, unchanged: float = 0.0, holder: str = THEM) -> Lease:
    """A lease of somebody else."""
    return Lease(holder, duration, 0.0, 0.0, 0, ELSEWHERE, unchanged)


def ours(duration: int, age: int | None, owner: str = HERE) -> Lease:
    """A lease of ours, acquired some time ago."""
    at = None if age is None else -age
    return Lease(US.identity, duration, at, at, 0, owner)


def _leases() -> Iterator[Lease | None]:
    yield None
    yield from (their(unchanged=0.0), their(unchanged=1.0), their(unchanged=2.0), their(0))
    yield their(holder="")
    yield from (ours(0, 1), ours(0, None), ours(US.padding_seconds + SHORT, None))
    yield ours(0, 1, ELSEWHERE)
    yield from (ours(US.padding_seconds + SHORT, age, ELSEWHERE) for age in (1, 3))
    # What is held only to end, what is asked for, and what somebody has put there by hand.
    for seconds in (0, SHORT, 2, LONG):
        yield from (ours(US.padding_seconds + seconds, age) for age in range(OLDEST + 1))


LEASES = tuple(_leases())
REQUESTS = (None, UNREADABLE, Wanted(SHORT, WORD), Wanted(LONG, WORD))
WINDOWS = (None, OURS, OURS_EARLIER, THEIRS)
NODE_STATUSES = (
    "",
    "in a word of somebody else's",
    "waiting",
    "new, create",
    "new, acquired",
    "new",
    "updated",
    "new, stale",
    "new, recreate",
    "draining: a pod",
    "active",
    "ended",
    "invalid",
)
CORDONS = (
    (False, ""),
    (True, US.identity),
    (True, ""),
    (False, US.identity),
    (True, THEM),
    (False, THEM),
)


@cache
def all_worlds() -> tuple[World, ...]:
    """Every combination of what can be seen, whether it can come to be or not.

    What is known of a drain comes of one: the check puts it there. Two words are enough for all
    requests there are: nothing is said of a word but whether it is that of the window.
    """
    return tuple(
        World(wanted, status, is_cordoned, mark, lease, window=window)
        for wanted in REQUESTS
        for window in WINDOWS
        for lease in LEASES
        for status in NODE_STATUSES
        for is_cordoned, mark in CORDONS
    )
