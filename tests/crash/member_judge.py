"""What a crowd saw of names, held against the order in which their pools say things happened.

Each change of a pool writes its event in the same step. So the events, by their numbers, say of
every instant in which pool each name was; and whoever looked, or was told something, did so between
two numbers that it has noted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from leasectl.engines.cluster.objects import ResourceObject
from leasectl.engines.kubernetes.encoding import parse_object
from leasectl.state.event import Event
from tests.kit.kubernetes.memberships import MembershipJudge, Write

_GONE = re.compile(r" moved to (\S+), removed$")
_COME = re.compile(r" moved here from (\S+), added$")
_TOLD_POOL = re.compile(r'resource "([^"]+)" is in pool "([^"]+)"')
_TOLD_EXPECTED = re.compile(r'resource "([^"]+)" is expected in pool "([^"]+)"')
_TOLD_LEAVING = re.compile(r'resource "[^"]+" is to move to pool "([^"]+)" when it is released')
_TOLD_OTHERWISE = re.compile("is held by|no resource|is in no pool|is not expected in")
# What came of it isn't known: on Kubernetes only is that nothing to wonder at.
UNSURE = "unsure"
# A step on several names has as many events as it has pairs of pools.
_MOST_EVENTS_OF_A_STEP = 8


class Seen(NamedTuple):
    """What one participant did with a name, and what came of it.

    Args:
        who: The participant.
        verb: ``add``, ``join``, ``hold``, ``move``, ``leave``, ``expect``, ``drop`` or ``read``.
        name: The name.
        to: The pool that it was to be in; empty for none.
        first: The number of the last event before it began.
        last: The same when it had ended; 0 of what was begun and perhaps never ended.
        outcome: ``begun``, ``done``, or why it was refused.
        found: The pools that it is in, as far as that was seen.
    """

    who: str
    verb: str
    name: str
    to: str
    first: int
    last: int = 0
    outcome: str = "begun"
    found: tuple[str, ...] = ()

    def encode(self) -> str:
        return json.dumps(self) + "\n"


def read_seen(path: Path) -> list[Seen]:
    """All that was written; the last line may be that of one who was killed."""
    lines = path.read_text().rpartition("\n")[0].splitlines()
    seen = (Seen(*json.loads(line)) for line in lines)
    return [each._replace(found=tuple(each.found)) for each in seen]


class Story:
    """In which pool each name was, after each event.

    Args:
        events: Of the pools, all that there were.

    Attributes:
        violations: What can't be, as far as the events go.
        moves: How many went from one pool to another.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.violations: list[str] = []
        self.moves = 0
        self._numbers: dict[str, list[int]] = {}
        self._pools: dict[str, list[str | None]] = {}
        self._leaving: dict[str, tuple[str, str, int]] = {}  # from, to, and at which event
        for index, event in enumerate(e for e in events if e.kind.startswith("pool ")):
            self._check_arrived(index)
            for name in event.names:
                self._take(index, event, name)

    def possible(self, name: str, first: int, last: int) -> set[str | None]:
        """In which pools a name was between two events, both included."""
        numbers = self._numbers.get(name, [])
        begin, end = bisect_right(numbers, first), bisect_right(numbers, last)
        there = self._pools.get(name, [])
        before = there[begin - 1] if begin else None
        return {before, *there[begin:end]}

    def _take(self, index: int, event: Event, name: str) -> None:
        gone, come = _GONE.search(event.reason), _COME.search(event.reason)
        now = (self._pools.get(name) or [None])[-1]
        if gone:
            if now != event.type:
                self._wrong(event, name, f"goes from {event.type} and is in {now}")
            self._leaving[name] = (event.type, gone.group(1), index)
        elif come:
            old, to, _ = self._leaving.pop(name, ("", "", 0))
            if (old, to) != (come.group(1), event.type):
                self._wrong(event, name, f"comes from {come.group(1)} and went from {old} to {to}")
            self.moves += 1
            self._note(event, name, event.type)
        elif event.kind == "pool made" or event.reason.endswith(" added"):
            if now is not None:
                self._wrong(event, name, f"is added to {event.type} and is in {now}")
            self._note(event, name, event.type)
        elif event.kind == "pool deleted" or event.reason.endswith(" removed"):
            if now != event.type:
                self._wrong(event, name, f"is removed from {event.type} and is in {now}")
            self._note(event, name, None)

    def _check_arrived(self, index: int) -> None:
        for name, (old, to, since) in list(self._leaving.items()):
            if index - since > _MOST_EVENTS_OF_A_STEP:
                self.violations.append(f"{name} went from {old} to {to} and never came")
                del self._leaving[name]

    def _note(self, event: Event, name: str, pool: str | None) -> None:
        self._numbers.setdefault(name, []).append(event.number)
        self._pools.setdefault(name, []).append(pool)

    def _wrong(self, event: Event, name: str, what: str) -> None:
        self.violations.append(f"event {event.number}: {name} {what}")


class WrittenStory:
    """The same, as a watch of Leases has told each write.

    Args:
        writes: Each with its resourceVersion.

    Attributes:
        violations: As `Story` has it.
        moves: Likewise.
    """

    def __init__(self, writes: Sequence[tuple[int, Write]]) -> None:
        self.violations = MembershipJudge().take(each for _, each in writes).violations
        self.moves = 0
        self._numbers: dict[str, list[int]] = {}
        self._pools: dict[str, list[str | None]] = {}
        for version, (name, raw) in writes:
            found = None if raw is None else parse_object(raw)
            pool = found.member.pool if isinstance(found, ResourceObject) else None
            there = self._pools.setdefault(name, [])
            self.moves += None not in (pool, *there[-1:]) and there[-1:] not in ([], [pool])
            there.append(pool)
            self._numbers.setdefault(name, []).append(version)

    def possible(self, name: str, first: int, last: int) -> set[str | None]:
        """As `Story` has it."""
        numbers, there = self._numbers.get(name, []), self._pools.get(name, [])
        begin, end = bisect_right(numbers, first), bisect_right(numbers, last)
        return {there[begin - 1] if begin else None, *there[begin:end]}


def violations(
    seen: Sequence[Seen], story: Story | WrittenStory, *, default: str, may_be_unsure: bool = False
) -> list[str]:
    """Say what nobody should have seen or been told.

    Args:
        seen: What the crowd did and saw.
        story: What happened.
        default: The type of the default pool.
        may_be_unsure: Somebody may not have got to know what came of what he did.
    """
    expected = {(each.name, each.to) for each in seen if each.verb == "expect"}
    found = list(story.violations)
    for each in seen:
        is_unsure = may_be_unsure and each.outcome.startswith(UNSURE)
        if each.outcome != "begun" and not is_unsure:
            found += (f"{each}: {what}" for what in _wrong(each, story, expected, default))
    return found


def _wrong(
    each: Seen, story: Story | WrittenStory, expected: set[tuple[str, str]], default: str
) -> Iterator[str]:
    possible = story.possible(each.name, each.first, each.last)
    if len(each.found) > 1:
        yield "in two pools"
    if each.outcome == "done":
        looked = each.verb in ("read", "move")  # what is held is moved later
        if looked and set(each.found or (None,)) - possible:
            yield f"it was in {possible}"
        if each.verb in ("add", "join", "hold") and each.to not in possible:
            yield f"it was in {possible}"
        return
    in_pool, belongs = _TOLD_POOL.search(each.outcome), _TOLD_EXPECTED.search(each.outcome)
    leaving = _TOLD_LEAVING.search(each.outcome)
    if in_pool:
        name, pool = in_pool.groups()
        possible = story.possible(name, each.first, each.last)
        if pool not in possible:
            yield f"the winner was one of {possible}"
        if pool == default:
            yield "the default pool has kept it"
    elif belongs:
        if belongs.groups() not in expected:
            yield "nobody has said so"
    elif leaving:
        if leaving.group(1) == each.to:
            yield "it is to be where it goes"
    elif not _TOLD_OTHERWISE.search(each.outcome):
        yield "it doesn't say who has won"


def summary(seen: Iterable[Seen]) -> Counter[tuple[str, str]]:
    """How often each verb came to what."""
    kinds = {"begun": "begun", "done": "done", UNSURE: UNSURE}
    return Counter(
        (each.verb, kinds.get(each.outcome.partition(":")[0], "refused")) for each in seen
    )
