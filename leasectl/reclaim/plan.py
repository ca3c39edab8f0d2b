"""Which leases to ask for and which to free: a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.leases.marks import Mark, parse_mark
from leasectl.system.clock import earliest
from leasectl.text.durations import LONGEST_SECONDS, format_duration, format_seconds
from leasectl.text.naming import MOST_AT_ONCE

# A holder that answered `keep`, or didn't answer, isn't asked again sooner.
LEAST_PAUSE_SECONDS = 1.0


class Wanted(NamedTuple):
    """What to take back: exactly one of the first three is set.

    Args:
        excess: So many leases too many are held, whichever they are.
        names: The leases of these resources.
        longer_than_seconds: The leases that are held for longer than this.
        delay_seconds: A lease has to be in excess for so long before its holder is asked.
        wait_seconds: How long to wait for an answer.
        group_by: The property that says what counts as one holder when the holder with most unused
            names comes first; None for a handle.
        follows: The reclaim goes on for as long as it runs; else it is done once.
        until_free: With an excess: ask only while fewer resources of the pool are free; None to ask
            however many are.
        leave_unused: With an excess: so many unused names stay with each handle, or each group.
    """

    excess: int | None = None
    names: frozenset[str] | None = None
    longer_than_seconds: float | None = None
    delay_seconds: float = 180.0
    wait_seconds: float = 180.0
    group_by: str | None = None
    follows: bool = False
    until_free: int | None = None
    leave_unused: int = 0

    @property
    def mark_seconds(self) -> float:
        """How long a mark lasts; it outlives its operator by at most this time."""
        return self.delay_seconds + self.wait_seconds

    @property
    def pause_seconds(self) -> float:
        """How long to wait before asking a holder again."""
        return max(self.delay_seconds, LEAST_PAUSE_SECONDS)


def check_wanted(wanted: Wanted) -> Wanted:
    """Return the options of a reclaim, checked.

    Raises:
        InvalidRequest: They are invalid.
    """
    said = (wanted.excess, wanted.names, wanted.longer_than_seconds)
    if sum(each is not None for each in said) != 1:
        raise InvalidRequest(
            "say what to take back: one of --excess N, --names A,B or --held-longer-than D"
        )
    if wanted.excess is not None and not 1 <= wanted.excess <= MOST_AT_ONCE:
        raise InvalidRequest(f"--excess {wanted.excess}: it can be 1 to {MOST_AT_ONCE} at a time")
    for option, number in (
        ("--until-free", wanted.until_free),
        ("--leave-unused", wanted.leave_unused or None),
    ):
        if number is not None and wanted.excess is None:
            raise InvalidRequest(f"{option} needs --excess")
        if number is not None and not 1 <= number <= MOST_AT_ONCE:
            raise InvalidRequest(f"invalid {option} {number}; use 1 to {MOST_AT_ONCE}")
    if wanted.wait_seconds <= 0:
        raise InvalidRequest("-w must be more than 0, so that holders have time to answer")
    if wanted.mark_seconds > LONGEST_SECONDS:
        raise InvalidRequest(
            f"--delay and -w: together they can be {format_duration(LONGEST_SECONDS)} at most"
        )
    return wanted


# Name and fence: unique among all leases of a resource, earlier and later ones.
LeaseId = tuple[str, int]


class Held(NamedTuple):
    """A lease, and the note at it.

    Args:
        name: The resource.
        fence: Of the lease.
        group: The holder or group that it counts for when those with most unused names come first.
        holder_identity: For people.
        held_seconds: How long it has been held, as far as that is known.
        is_in_use: It is in use now, as far as that can be seen.
        used_at: When a use of it ended last, as far as that can be seen, on the elapsed clock; None
            for never.
        note: The note at it; None for none.
        marked_seconds: How long ago the mark was made, by the time that it records; 0 where that
            time lies ahead of our clock.
    """

    name: str
    fence: int
    group: str
    holder_identity: str = ""
    held_seconds: float = 0.0
    is_in_use: bool = False
    used_at: float | None = None
    note: str | None = None
    marked_seconds: float = 0.0

    @property
    def id(self) -> LeaseId:
        return self.name, self.fence

    @property
    def mark(self) -> Mark | None:
        """The mark at it; None for none, whatever else may be noted there."""
        return None if self.note is None else parse_mark(self.note)

    @property
    def state(self) -> str:
        """The state of its mark; empty without one."""
        return "" if self.mark is None else self.mark.state


def in_order(unused: Iterable[Held]) -> list[Held]:
    """Return the leases that could be asked for, in the order in which they will be."""
    leases = list(unused)
    numbers = Counter(each.group for each in leases)
    return sorted(leases, key=lambda each: (-numbers[each.group], each.group, *_age(each)))


def _age(lease: Held) -> tuple[int, str]:
    return lease.fence, lease.name


class Asked(NamedTuple):
    """A mark that a reclaim counts as its own.

    Args:
        mark_id: Of the mark.
        at: When it was put or found, on the elapsed clock.
        free_at: When the lease may be freed, once its holder is ready: the delay after the time
            that a found mark records; at once after a mark of our own, which the delay preceded.
    """

    mark_id: str
    at: float
    free_at: float = 0.0


# Why a lease wasn't freed, or a named resource.
IN_USE, KEPT, UNANSWERED = "in use", "its holder keeps it", "no answer"
TOO_YOUNG, NOT_ASKED = "unused for less than --delay", "not asked, as others were asked first"
LEFT_UNUSED = "kept by --leave-unused"
GIVEN_BACK, NOT_HELD = "given back by its holder", "not held"
CHANGED = "its lease or answer changed at that moment"


class NotFreed(NamedTuple):
    """A name that a reclaim didn't free.

    Args:
        name: The resource.
        reason: Why, for people.
    """

    name: str
    reason: str


class Memory(NamedTuple):
    """What a reclaim remembers from one look to the next.

    Args:
        began_at: When it began, on the elapsed clock, as all times here.
        only: The leases that it is about; None for those that are there when it looks.
        since: Since when each unmarked lease is in excess.
        asked: The marks that are its own.
        back: Leases that it had asked for, or is about, and that have ended.
        refused: Why it has given up a mark, by lease: `KEPT` or `UNANSWERED`.
    """

    began_at: float
    only: frozenset[LeaseId] | None = None
    since: Mapping[LeaseId, float] = {}
    asked: Mapping[LeaseId, Asked] = {}
    back: frozenset[LeaseId] = frozenset()
    refused: Mapping[LeaseId, str] = {}

    def having_marked(
        self, put: Mapping[LeaseId, Mark], taken_off: Container[LeaseId], now: float
    ) -> Memory:
        """Return the memory after marks have been put and others removed.

        A mark that couldn't be removed has just been answered, and is still our own.
        """
        left = {lease: each for lease, each in self.asked.items() if lease not in taken_off}
        new = {lease: Asked(mark.id, now) for lease, mark in put.items()}
        return self._replace(asked={**left, **new})


class Step(NamedTuple):
    """The next step of a reclaim.

    Args:
        memory: What it remembers from now on.
        free: The leases to free, which are ready.
        take_off: The leases whose mark to remove.
        ask: The leases to mark.
        missing: How many are still to come back, including those that are freed now.
        look_at: When to look again, if nothing happens before; None for not at all.
        is_over: There is nothing more to be had, or no more time.
        not_freed: Once it is over: the leases that were meant and aren't freed now, with the reason
            for each.
    """

    memory: Memory
    free: tuple[Held, ...]
    take_off: tuple[Held, ...]
    ask: tuple[Held, ...]
    missing: int
    look_at: float | None
    is_over: bool
    not_freed: tuple[NotFreed, ...] = ()


def begin(wanted: Wanted, held: Iterable[Held], now: float) -> Memory:
    """Return the memory of a reclaim that has just begun, whatever another one knew before it."""
    if wanted.follows or wanted.excess is not None:
        return Memory(now)
    return Memory(now, only=frozenset(each.id for each in held if _is_meant(wanted, each)))


def next_step(
    wanted: Wanted, held: Sequence[Held], memory: Memory, now: float, *, free: int = 0
) -> Step:
    """Return the next step, given what is seen.

    Args:
        wanted: What to take back.
        held: All leases of the pool.
        memory: The memory after the step before, or from `begin`.
        now: On the elapsed clock.
        free: How many resources of the pool are free.
    """
    return _Plan(wanted, held, memory, now, free).step()


def last_step(held: Iterable[Held], memory: Memory) -> tuple[Held, ...]:
    """Return the leases whose mark to remove at the end, whatever was answered."""
    return tuple(each for each in held if _is_own(each, memory.asked))


class _Plan:
    """Works out one step."""

    def __init__(
        self, wanted: Wanted, held: Sequence[Held], memory: Memory, now: float, free: int
    ) -> None:
        self._wanted = wanted
        self._free = free
        self._held = held
        self._before = memory
        self._now = now
        self._until = None if wanted.follows else memory.began_at + wanted.mark_seconds
        self._meant = [each for each in held if self._is_meant(each)]
        self._since: dict[LeaseId, float] = {}
        self._asked: dict[LeaseId, Asked] = {}
        self._back = memory.back
        self._no: list[Held] = []
        self._refused: dict[LeaseId, str] = {}

    def step(self) -> Step:
        self._remember()
        missing = self._missing()
        own = self._own(missing)
        for each in own[missing:]:
            self._leave_alone(each)
        no, own = [*self._no, *own[missing:]], own[:missing]
        ready = [
            each
            for each in own
            if each.state == "ready" and self._asked[each.id].free_at <= self._now
        ]
        room = 0 if self._is_late else missing - len(own)
        ask = [each for each in self._unused() if self._ripe_at(each) <= self._now][:room]
        is_over = self._is_over(missing, len(own) + len(ask))
        return Step(
            self._before._replace(
                since=self._since, asked=self._asked, back=self._back, refused=self._refused
            ),
            free=tuple(ready),
            take_off=tuple(no),
            ask=tuple(ask),
            missing=missing,
            look_at=self._look_at(own, room - len(ask)),
            is_over=is_over,
            not_freed=self._not_freed(ready) if is_over and missing else (),
        )

    def _not_freed(self, freed: Sequence[Held]) -> tuple[NotFreed, ...]:
        gone = {each.id for each in freed}
        left = {each.id for each in self._left_unused()}
        return tuple(
            NotFreed(each.name, self._why_not(each, is_left=each.id in left))
            for each in sorted(self._meant, key=lambda each: each.name)
            if each.id not in gone
        )

    def _why_not(self, each: Held, *, is_left: bool) -> str:
        if each.is_in_use:
            return IN_USE
        refused = self._refused.get(each.id)
        if each.state == "marked" or refused == UNANSWERED:
            return f"{UNANSWERED} within {format_seconds(self._wanted.wait_seconds)}"
        if refused is not None:
            return refused
        if is_left:
            return LEFT_UNUSED
        is_ripe = each.id not in self._since or self._ripe_at(each) <= self._now
        return NOT_ASKED if is_ripe else TOO_YOUNG

    @property
    def _is_late(self) -> bool:
        return self._until is not None and self._now >= self._until

    def _is_meant(self, each: Held) -> bool:
        only = self._before.only
        return _is_meant(self._wanted, each) if only is None else each.id in only

    def _remember(self) -> None:
        """Note since when each meant lease is in excess, and whether its mark is ours."""
        there = {each.id for each in self._held}
        if self._wanted.excess is not None:
            self._back |= self._before.asked.keys() - there
        for each in self._meant:
            if each.id in self._before.refused:
                self._refused[each.id] = self._before.refused[each.id]
            asked, mark = self._before.asked.get(each.id), each.mark
            if mark is None or (asked is not None and asked.mark_id != mark.id):
                since = self._before.since.get(each.id, self._now)
                used_at = self._now if each.is_in_use else each.used_at
                self._since[each.id] = since if used_at is None else max(since, used_at)
                if asked is not None:  # another process has removed it
                    self._leave_alone(each)
                continue
            if asked is not None:
                self._asked[each.id] = asked
            if mark.state == "keep":
                self._refused[each.id] = KEPT
            elif (
                mark.state == "marked"
                and asked is not None
                and self._now >= self._unanswered_at(asked, mark)
            ):
                self._refused[each.id] = UNANSWERED
            else:
                continue
            self._no.append(each)
            self._leave_alone(each)

    def _unanswered_at(self, asked: Asked, mark: Mark) -> float:
        """Return until when an answer to a mark is waited for."""
        return asked.at + min(self._wanted.wait_seconds, mark.seconds)

    def _leave_alone(self, each: Held) -> None:
        """Start the delay of a lease again that can't be had for now."""
        again_at = self._now + self._wanted.pause_seconds
        self._since[each.id] = again_at - self._wanted.delay_seconds

    def _missing(self) -> int:
        """Return how many are still to come back now."""
        missing, until_free = self._missing_of_excess(), self._wanted.until_free
        return missing if until_free is None else min(missing, max(0, until_free - self._free))

    def _missing_of_excess(self) -> int:
        """Return how many are to come back; if all have and it goes on, as many again."""
        if self._wanted.excess is None:
            return len(self._meant)
        missing = max(0, self._wanted.excess - len(self._back))
        if missing == 0 and self._wanted.follows:
            self._back = frozenset()
            self._since = {lease: max(at, self._now) for lease, at in self._since.items()}
            return self._wanted.excess
        return missing

    def _own(self, missing: int) -> list[Held]:
        """Return the leases with our marks, and others' if they are too few; ready ones first."""
        refused = {each.id for each in self._no}
        marked = [each for each in self._meant if each.mark is not None and each.id not in refused]
        own = [each for each in marked if each.id in self._asked]
        others = [each for each in marked if each.id not in self._asked]
        adopted = sorted(others, key=_by_answer)[: max(0, missing - len(own))]
        for each in adopted:
            mark = each.mark
            assert mark is not None
            rest = max(0.0, self._wanted.delay_seconds - each.marked_seconds)
            self._asked[each.id] = Asked(mark.id, self._now, self._now + rest)
        return sorted([*own, *adopted], key=_by_answer)

    def _unmarked(self) -> list[Held]:
        return [each for each in self._meant if each.mark is None]

    def _unused(self) -> list[Held]:
        """Return the leases that could be asked for, were it time, in the order of asking."""
        unused = in_order(each for each in self._unmarked() if not each.is_in_use)
        left = {each.id for each in self._left_unused()}
        return [each for each in unused if each.id not in left]

    def _left_unused(self) -> list[Held]:
        """Return the leases that stay with their holders: the newest of each group."""
        number = self._wanted.leave_unused
        by_group: dict[str, list[Held]] = {}
        if number:
            for each in self._unmarked():
                if not each.is_in_use:
                    by_group.setdefault(each.group, []).append(each)
        return [each for group in by_group.values() for each in sorted(group, key=_age)[-number:]]

    def _ripe_at(self, each: Held) -> float:
        """Return when a lease may be asked for, if nothing happens before."""
        if each.is_in_use:
            return self._now + self._wanted.pause_seconds
        return self._since[each.id] + self._wanted.delay_seconds

    def _next_ripe_at(self) -> float | None:
        """Return when the next lease may be asked for; None if none can be."""
        wanted, now = self._wanted, self._now
        at = [self._ripe_at(each) for each in self._unmarked()]
        at = [each for each in at if each > now]
        if self._before.only is None:  # there may be other leases by then
            at.append(now + wanted.pause_seconds)
        if wanted.longer_than_seconds is not None and self._before.only is None:
            longer = [wanted.longer_than_seconds - each.held_seconds for each in self._held]
            at += [now + each for each in longer if each > 0]
        return min(at, default=None)

    def _look_at(self, own: Iterable[Held], room: int) -> float | None:
        waited = []
        for each in own:
            asked, mark = self._asked[each.id], each.mark
            if mark is not None and mark.state == "marked":
                waited.append(self._unanswered_at(asked, mark))
            elif each.state == "ready" and asked.free_at > self._now:
                waited.append(asked.free_at)
        ripe = self._next_ripe_at() if room > 0 or self._wanted.follows else None
        return earliest(self._until, ripe, *waited)

    def _is_over(self, missing: int, waiting: int) -> bool:
        if self._until is None:
            return False
        if missing == 0 or self._is_late:
            return True
        ripe = self._next_ripe_at()
        return not waiting and (ripe is None or ripe >= self._until)


def _is_meant(wanted: Wanted, each: Held) -> bool:
    if wanted.names is not None:
        return each.name in wanted.names
    if wanted.longer_than_seconds is not None:
        return each.held_seconds > wanted.longer_than_seconds
    return True


def _is_own(each: Held, asked: Mapping[LeaseId, Asked]) -> bool:
    own, mark = asked.get(each.id), each.mark
    return own is not None and mark is not None and own.mark_id == mark.id


def _by_answer(each: Held) -> tuple[bool, int, str]:
    return each.state != "ready", each.fence, each.name
