"""What participants saw, written down by themselves, and whether it can be true.

Each event is one line, appended with one write(2) to one file, outside of our database. A grant is
written after `acquire` has returned and a release before `release` is called, so what a participant
seems to hold is never longer than what it held: an overlap here is an overlap there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from leasectl.model import Lease


class Event(NamedTuple):
    """One line of a history.

    Args:
        at: CLOCK_MONOTONIC, nanoseconds.
        kind: ``granted``, or ``releasing``.
        handle: Whose event it is: the handle and its acquisition.
        name: The resource.
        fence: As granted.
        ticket: As granted.
        grant: As granted.
        wanted: How many resources were asked for together.
    """

    at: int
    kind: str
    handle: str
    name: str
    fence: int
    ticket: int
    grant: int
    wanted: int

    def encode(self) -> str:
        """Write it as one line; `parse_event` reads it back."""
        return " ".join(map(str, self)) + "\n"


def parse_event(line: str) -> Event:
    """Read what `Event.encode` wrote."""
    at, kind, handle, name, fence, ticket, grant, wanted = line.split()
    return Event(int(at), kind, handle, name, int(fence), int(ticket), int(grant), int(wanted))


class Recorder:
    """Appends to a history; any number of processes may, each with a recorder of its own."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, kind: str, handle: str, leases: Sequence[Lease]) -> None:
        now = time.monotonic_ns()
        lines = "".join(
            Event(now, kind, handle, x.name, x.fence, x.ticket, x.grant, len(leases)).encode()
            for x in leases
        ).encode()
        # One write, or lines of several processes could mix.
        assert os.write(self._fd, lines) == len(lines)


def read_history(path: Path) -> list[Event]:
    """All events, in the order of their times."""
    return sorted(map(parse_event, path.read_text().splitlines()))


class Hold(NamedTuple):
    """A grant and, unless its holder was killed, its release."""

    start: int
    end: int | None
    event: Event


def violations(history: Iterable[Event], *, capacity: int) -> list[str]:
    """Say what in a history breaks exclusion, the order of fences, or the order of grants."""
    events = sorted(history)
    holds = _holds(events)
    return [
        *_overlaps(holds),
        *_too_many(events, capacity),
        *_shrinking_fences(holds),
        *_out_of_order(events),
        *_incomplete(events),
    ]


def _holds(events: Sequence[Event]) -> list[Hold]:
    ends = {(e.handle, e.name, e.fence): e.at for e in events if e.kind == "releasing"}
    return [
        Hold(e.at, ends.get((e.handle, e.name, e.fence)), e) for e in events if e.kind == "granted"
    ]


def _overlaps(holds: Sequence[Hold]) -> list[str]:
    found = []
    last: dict[str, Hold] = {}
    for hold in holds:
        before = last.get(hold.event.name)
        # Whoever has written no release was killed, at a time that nobody wrote down.
        if before is not None and before.end is not None and before.end > hold.start:
            found.append(
                f"{hold.event.name} was granted to {hold.event.handle} while "
                f"{before.event.handle} held it"
            )
        last[hold.event.name] = hold
    return found


def _too_many(events: Sequence[Event], capacity: int) -> list[str]:
    released = {(e.handle, e.name, e.fence) for e in events if e.kind == "releasing"}
    held = 0
    most = 0
    for event in events:
        if event.kind == "releasing":
            held -= 1
        elif (event.handle, event.name, event.fence) in released:
            held += 1
        most = max(most, held)
    return [f"{most} held at once, of {capacity}"] if most > capacity else []


def _shrinking_fences(holds: Sequence[Hold]) -> list[str]:
    found = []
    last: dict[str, int] = {}
    for hold in holds:
        name, fence = hold.event.name, hold.event.fence
        if fence <= last.get(name, 0):
            found.append(f"{name} got fence {fence} after fence {last[name]}")
        last[name] = fence
    return found


def _out_of_order(events: Sequence[Event]) -> list[str]:
    grants = sorted({(e.ticket, e.grant) for e in events if e.kind == "granted"})
    return [
        f"ticket {later[0]} has grant {later[1]}, but ticket {earlier[0]} has grant {earlier[1]}"
        for earlier, later in zip(grants, grants[1:])
        if later[1] <= earlier[1]
    ]


def _incomplete(events: Sequence[Event]) -> list[str]:
    names: dict[tuple[str, int], set[str]] = {}
    wanted: dict[tuple[str, int], int] = {}
    for event in events:
        if event.kind == "granted":
            names.setdefault((event.handle, event.ticket), set()).add(event.name)
            wanted[event.handle, event.ticket] = event.wanted
    return [
        f"{handle} got {sorted(some)} with one grant, and wanted {wanted[handle, ticket]}"
        for (handle, ticket), some in names.items()
        if len(some) != wanted[handle, ticket]
    ]
