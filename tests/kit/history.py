"""What participants saw, written down by themselves, and whether it can be true.

Each event is one line, appended with one write(2) to one file, outside of our database. A grant is
written after `acquire` has returned and a release before `release` is called, so what a participant
seems to hold is never longer than what it held: an overlap here is an overlap there.

Where leases expire, a holder also writes until when it believes in its lease (``until``), and
``lost`` when it stopped because of that. That it died, others write.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, TypeVar

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.model import Lease
from leasectl.system.clock import boottime_seconds

K = TypeVar("K")
_NEVER = 2**63
# Whoever is continued looks when it is given a CPU.
_SLACK_SECONDS = 3.0


class Event(NamedTuple):
    """One line of a history.

    Args:
        at: CLOCK_BOOTTIME, nanoseconds.
        kind: Of a holder ``granted``, ``renewed``, then ``releasing`` or ``lost``; after a release
            ``released`` for each caller that was told so, ``unreleased`` when nobody was. Of others
            ``died``, ``stopped`` and ``continued``, and ``expired`` when the store took it back.
            Of who asks for one name ``asked``, before it is granted. More kinds are for those
            who read the history.
        handle: Whose event it is: the handle and its acquisition, ``<participant>.<number>``. The
            participant alone when it died.
        name: The resource.
        fence: As granted.
        ticket: As granted.
        grant: As granted.
        wanted: How many resources were asked for together.
        until: When its holder stops using it unless it renews before, on the same clock; 0: never.
    """

    at: int
    kind: str
    handle: str
    name: str
    fence: int
    ticket: int
    grant: int
    wanted: int
    until: int = 0

    @property
    def lease(self) -> tuple[str, str, int]:
        """What tells this lease from all others."""
        return (self.handle, self.name, self.fence)

    def encode(self) -> str:
        """Write it as one line; `parse_event` reads it back."""
        return " ".join(map(str, self)) + "\n"


def parse_event(line: str) -> Event:
    """Read what `Event.encode` wrote."""
    at, kind, handle, name, *numbers = line.split()
    return Event(int(at), kind, handle, name, *map(int, numbers))


def participant_of(handle: str) -> str:
    """The participant that a handle belongs to."""
    return handle.rpartition(".")[0] or handle


class Recorder:
    """Appends to a history; any number of processes may, each with a recorder of its own."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, kind: str, handle: str, leases: Sequence[Lease], *, until: float = 0.0) -> None:
        """Write an event for each of some leases; ``until`` is CLOCK_BOOTTIME, in seconds."""
        now, end = _nanoseconds(boottime_seconds()), _nanoseconds(until)
        self._append(
            Event(now, kind, handle, x.name, x.fence, x.ticket, x.grant, len(leases), end)
            for x in leases
        )

    def note(
        self,
        kind: str,
        handle: str,
        name: str = "-",
        *,
        ticket: int = 0,
        wanted: int = 0,
        at: float | None = None,
        until: float = 0.0,
    ) -> None:
        """Write an event that is about no lease; ``at`` is now unless given, in seconds."""
        now = boottime_seconds() if at is None else at
        end = _nanoseconds(until)
        self._append([Event(_nanoseconds(now), kind, handle, name, 0, ticket, 0, wanted, end)])

    def _append(self, events: Iterable[Event]) -> None:
        lines = "".join(event.encode() for event in events).encode()
        # One write, or lines of several processes could mix.
        assert os.write(self._fd, lines) == len(lines)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def read_history(path: Path) -> list[Event]:
    """All events, in the order of their times.

    A last line without an end is left out: it is being written.
    """
    whole, _, _ = path.read_text().rpartition("\n")
    return sorted(map(parse_event, whole.splitlines()))


class Hold(NamedTuple):
    """A grant and the end of its use; None if its holder was killed before it wrote that."""

    start: int
    end: int | None
    event: Event


def violations(history: Iterable[Event], *, capacity: int, counts_grants: bool = True) -> list[str]:
    """Say what in a history breaks exclusion, the order of fences, or the order of grants.

    Args:
        history: All events.
        capacity: How many resources there are.
        counts_grants: Each grant has a number of its own; else two at once may have the same.
    """
    events = sorted(history)
    holds = uses(events)
    return [
        *_overlaps(holds),
        *_too_many(holds, capacity),
        *_shrinking_fences(holds),
        *_out_of_order(events),
        *(_same_numbers(events) if counts_grants else ()),
        *_incomplete(events),
        *_released_twice(events),
        *_released_by_nobody(events),
    ]


def uses(events: Sequence[Event]) -> list[Hold]:
    """Every use of a resource, in the order of their starts.

    A lease that its holder couldn't believe in any more when it was told of the grant has none.
    """
    limits = _limits(events)
    died = _first(events, "died", lambda e: e.handle)
    stopped = _first(events, "releasing", lambda e: e.lease)
    lost = _first(events, "lost", lambda e: e.lease)
    found = []
    for e in events:
        if e.kind == "granted":
            ends = (
                limits.get(e.lease),
                stopped.get(e.lease),
                lost.get(e.lease),
                died.get(participant_of(e.handle)),
            )
            end = min((each for each in ends if each is not None), default=None)
            if end is None or end > e.at:
                found.append(Hold(e.at, end, e))
    return found


def _first(events: Iterable[Event], kind: str, key: Callable[[Event], K]) -> dict[K, int]:
    """When something of a kind happened for the first time, for each key."""
    found: dict[K, int] = {}
    for event in events:
        if event.kind == kind:
            found.setdefault(key(event), event.at)
    return found


def _limits(events: Iterable[Event]) -> dict[tuple[str, str, int], int]:
    """Until when each holder at most believed in each of its leases."""
    found: dict[tuple[str, str, int], int] = {}
    for event in events:
        if event.kind in ("granted", "renewed") and event.until:
            found[event.lease] = max(event.until, found.get(event.lease, 0))
    return found


def _overlaps(holds: Sequence[Hold]) -> Iterator[str]:
    last: dict[str, Hold] = {}
    for hold in holds:
        name = hold.event.name
        before = last.get(name)
        # Whoever has written no release was killed, at a time that nobody wrote down.
        if before is not None and before.end is not None and before.end > hold.start:
            yield f"{name} was granted to {hold.event.handle} while {before.event.handle} held it"
        if before is None or (before.end or 0) <= (hold.end or hold.start):
            last[name] = hold


def _too_many(holds: Sequence[Hold], capacity: int) -> list[str]:
    changes = [(h.start, 1) for h in holds if h.end is not None]
    changes += [(h.end, -1) for h in holds if h.end is not None]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return [f"{most} held at once, of {capacity}"] if most > capacity else []


def _shrinking_fences(holds: Sequence[Hold]) -> Iterator[str]:
    last: dict[str, int] = {}
    for hold in holds:
        name, fence = hold.event.name, hold.event.fence
        if fence <= last.get(name, 0):
            yield f"{name} got fence {fence} after fence {last[name]}"
        last[name] = fence


def _out_of_order(events: Sequence[Event]) -> Iterator[str]:
    """Grants that a ticket got before a better one that could have used what it took."""
    grants = _grants(events)
    stops = _stops(events)
    first: dict[str, int] = {}  # the lowest grant of a worse ticket, by resource
    for better in sorted(grants, reverse=True):
        wanted = first if better.asked is None else {better.asked}
        if min((first.get(name, better.grant) for name in wanted), default=0) < better.grant:
            for worse in grants:
                if worse.passed(better) and not _was_stopped(better, worse.at, stops):
                    yield (
                        f"ticket {worse.ticket} has grant {worse.grant}, "
                        f"but ticket {better.ticket} has grant {better.grant}"
                    )
        for name in better.names:
            first[name] = min(better.grant, first.get(name, better.grant))


def _same_numbers(events: Sequence[Event]) -> Iterator[str]:
    by_number = sorted(_grants(events), key=lambda each: (each.grant, each.ticket))
    for one, other in zip(by_number, by_number[1:]):
        if one.grant == other.grant:
            yield f"tickets {one.ticket} and {other.ticket} both have grant {one.grant}"


class _Grant(NamedTuple):
    """What a ticket got."""

    ticket: int
    grant: int
    at: int
    handle: str
    names: frozenset[str]
    asked: str | None

    def passed(self, better: _Grant) -> bool:
        """Whether it took something that a better ticket waited for."""
        is_first = self.ticket > better.ticket and self.grant < better.grant
        return is_first and (better.asked is None or better.asked in self.names)


def _grants(events: Sequence[Event]) -> list[_Grant]:
    asked = {e.handle: e.name for e in events if e.kind == "asked" and e.name != "-"}
    found: dict[tuple[int, str], _Grant] = {}
    for e in events:
        if e.kind == "granted":
            new = _Grant(e.ticket, e.grant, e.at, e.handle, frozenset(), asked.get(e.handle))
            before = found.get((e.ticket, e.handle), new)
            found[e.ticket, e.handle] = before._replace(names=before.names | {e.name})
    return list(found.values())


def _stops(events: Sequence[Event]) -> dict[str, list[tuple[int, int]]]:
    """When each participant was stopped, from when to when; its last may not have an end."""
    found: dict[str, list[tuple[int, int]]] = {}
    for e in events:
        if e.kind == "stopped":
            found.setdefault(e.handle, []).append((e.at, _NEVER))
        elif e.kind == "continued":
            found[e.handle][-1] = (found[e.handle][-1][0], e.at)
    return found


def _was_stopped(grant: _Grant, at: int, stops: Mapping[str, Sequence[tuple[int, int]]]) -> bool:
    """Whether who waited had been stopped for so long by then that others could pass."""
    long_ns, slack_ns = _nanoseconds(SUSPENDED_AFTER_SECONDS), _nanoseconds(_SLACK_SECONDS)
    return any(
        since + long_ns <= at <= until + slack_ns
        for since, until in stops.get(participant_of(grant.handle), ())
    )


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


def _released_twice(events: Sequence[Event]) -> Iterator[str]:
    told: set[tuple[str, str, int]] = set()
    for event in events:
        if event.kind == "released":
            if event.lease in told:
                yield f"two callers were told that they released {event.name} of {event.handle}"
            told.add(event.lease)


def _released_by_nobody(events: Sequence[Event]) -> Iterator[str]:
    """Releases of which no caller was told.

    Where an answer is lost, a resource that others have had and freed since shows nothing of it.
    """
    expired = {(event.handle, event.name) for event in events if event.kind == "expired"}
    sent: dict[tuple[str, str, int], int] = {}
    freed: dict[str, int] = {}  # when a resource was released last
    for event in events:
        if event.kind == "releasing":
            sent[event.lease] = event.at
        elif event.kind == "released":
            freed[event.name] = event.at
        elif (
            event.kind == "unreleased"
            and (event.handle, event.name) not in expired
            and freed.get(event.name, 0) <= sent.get(event.lease, 0)
        ):
            yield f"nobody was told of the release of {event.name} of {event.handle}"


def expired_early(events: Sequence[Event]) -> Iterator[str]:
    """What a holder was told to have lost by time while it believed in it still.

    A claim that expires before its grant is known, as its answer was lost, misleads nobody.
    """
    expired: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.kind == "expired":
            expired.setdefault((event.handle, event.name), []).append(event.at)
    for begin, end, use in uses(events):
        found = expired.get((use.handle, use.name), ())
        if end is not None and any(begin <= at < end for at in found):
            yield f"{use.name} of {use.handle} expired while its holder believed in it"
