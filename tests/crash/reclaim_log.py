"""What holders and operators of reclaims write down, and whether it can be true.

Each line is appended with one write(2). A use is written after it was allowed and its end before it
is asked for, so what seems to be in use was in use. When a lease was freed says the event that the
engine has written with it: no later than it was free.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from leasectl.state.event import Event

LeaseId = tuple[str, int]


class Line(NamedTuple):
    """Something that a participant has done.

    Args:
        at: When it was done, wall clock, in seconds; of what is asked for, when that has returned.
        began: When it was begun, likewise.
        kind: Of holders ``use``, ``refused`` and ``unuse``; of operators ``start``, ``look``,
            ``asked`` and ``off`` of marks, ``written``, ``freeing`` with a number of requests,
            and ``freed``.
        who: The process.
        name: The resource; empty where there is none.
        fence: Of its lease; 0 likewise.
        number: Of requests, or of marks.
    """

    at: float
    began: float
    kind: str
    who: int
    name: str = ""
    fence: int = 0
    number: int = 0


class Log:
    """A file that many processes append to.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(
        self, kind: str, name: str = "", fence: int = 0, *, began: float = 0.0, number: int = 0
    ) -> None:
        """Append a line, at this instant."""
        now = time.time()
        line = Line(now, began or now, kind, os.getpid(), name, fence, number)
        os.write(self._fd, (json.dumps(line) + "\n").encode())


def read_log(path: Path) -> list[Line]:
    """The lines, by the time at which they were written."""
    return sorted(Line(*json.loads(line)) for line in path.read_text().splitlines())


class Use(NamedTuple):
    """That a lease was in use, from no later than the one to no earlier than the other."""

    lease: LeaseId
    asked_at: float
    since: float
    until: float


def uses_in(lines: Iterable[Line]) -> Iterator[Use]:
    """All uses, also those that have not ended."""
    begun: dict[LeaseId, Line] = {}
    for line in lines:
        lease = (line.name, line.fence)
        if line.kind == "use":
            begun[lease] = line
        elif line.kind == "unuse" and lease in begun:
            first = begun.pop(lease)
            yield Use(lease, first.began, first.at, line.began)
    for lease, first in begun.items():
        yield Use(lease, first.began, first.at, float("inf"))


def freed_in(events: Iterable[Event]) -> dict[LeaseId, float]:
    """When each lease was freed that a reclaim has taken back."""
    return {
        lease: event.time
        for event in events
        if event.kind == "released" and event.by == "reclaim"
        for lease in zip(event.names, event.fences)
    }


def violations(lines: list[Line], events: Iterable[Event], *, delay_seconds: float) -> list[str]:
    """What can't be, if a handshake does what it says."""
    freed = freed_in(events)
    found = []
    for use in uses_in(lines):
        freed_at = freed.get(use.lease)
        if freed_at is None:
            continue
        if use.since <= freed_at < use.until:
            found.append(f"{use.lease} was freed while it was in use")
        if use.asked_at > freed_at:
            found.append(f"{use.lease} was used after it was freed")
    return found + list(_asked_too_early(lines, delay_seconds))


def _asked_too_early(lines: Iterable[Line], delay_seconds: float) -> Iterator[str]:
    """Marks that were put sooner than a delay after their operator had begun, or been answered."""
    started: dict[int, float] = {}
    looked: dict[int, float] = {}
    refused: dict[int, dict[LeaseId, float]] = defaultdict(dict)
    for line in lines:
        lease = (line.name, line.fence)
        if line.kind == "start":
            started[line.who] = line.at
        elif line.kind == "look":
            looked[line.who] = line.at
        elif line.kind == "off":  # because of what that look has shown
            refused[line.who][lease] = looked[line.who]
        elif line.kind == "asked":
            since = max(started[line.who], refused[line.who].get(lease, 0.0))
            if line.began < since + delay_seconds:
                seconds = line.began - since
                yield f"{lease} was asked for {seconds:.3f}s after a restart or an answer"
