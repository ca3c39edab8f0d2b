"""What the history of a run on etcd must show, beside what `tests.kit.history` checks of any."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.kit.history import Event, expired_early, participant_of, violations

# After a change of leader etcd gives every lease its full time again and one election timeout; it
# looks every half second for those that have run out. The rest is for a machine that is busy.
SLACK_SECONDS = 3.0


class Counts(NamedTuple):
    """How much a history has to tell.

    Args:
        grants: Acquisitions that were granted.
        releases: Acquisitions given back, as a caller was told.
        losses: Acquisitions whose holder stopped because it couldn't renew them, or had lost them.
        late: Of those, how many went on for a tenth of a second: the machine was busy.
        gave_up: Acquisitions that ended without a grant, by the error.
        deaths: Participants that were killed.
        leaders: How many leaders the cluster had, one after the other.
        faults: How many of each kind; without those that found nobody to hit.
    """

    grants: int
    releases: int
    losses: int
    late: int
    gave_up: dict[str, int]
    deaths: int
    leaders: int
    faults: dict[str, int]


def count(history: Iterable[Event]) -> Counts:
    """Count what happened."""
    events = list(history)
    until = {e.handle: e.until for e in events if e.kind in ("granted", "renewed")}
    heard = {event.handle: event.at for event in events if event.kind == "granted"}
    lost = {event.handle: event.at for event in events if event.kind == "lost"}
    return Counts(
        grants=_handles(events, "granted"),
        releases=_handles(events, "released"),
        losses=len(lost),
        late=sum(until[h] + 0.1e9 < at and heard[h] < until[h] for h, at in lost.items()),
        gave_up=dict(sorted(Counter(e.name for e in events if e.kind == "gave-up").items())),
        deaths=sum(event.kind == "killed" for event in events),
        leaders=len({event.ticket for event in events if event.kind == "leads"}),
        faults=dict(
            sorted(
                Counter(
                    e.handle for e in events if e.kind == "fault" and e.name != "nobody"
                ).items()
            )
        ),
    )


def all_violations(history: Iterable[Event], *, capacity: int, ttl_seconds: float) -> list[str]:
    """Say what in the history of a run breaks a guarantee.

    Args:
        history: Of the participants, of the observer, and of who made the faults.
        capacity: How many resources there are.
        ttl_seconds: The longest that anybody asked for.
    """
    events = sorted(history)
    return [
        *violations(events, capacity=capacity),
        *_outlived(events, ttl_seconds),
        *expired_early(events),
        *_failed(events),
    ]


def all_gone_at(history: Iterable[Event], *, ttl_seconds: float) -> float:
    """When nothing can be held any more once everybody is dead; CLOCK_BOOTTIME, in seconds."""
    last = max((event.at for event in history if event.kind in ("died", "leads")), default=0)
    return last / 1e9 + ttl_seconds + SLACK_SECONDS


def _handles(events: Sequence[Event], kind: str) -> int:
    return len({event.handle for event in events if event.kind == kind})


def _outlived(events: Sequence[Event], ttl_seconds: float) -> Iterator[str]:
    """Whatever the dead have left when one ttl has passed, since the last change of leader too."""
    died = {event.handle: event.at for event in events if event.kind == "died"}
    leads = [event.at for event in events if event.kind == "leads"]
    told = set()
    for event in events:
        death = died.get(participant_of(event.handle))
        if event.kind not in ("holds", "waits") or death is None or death > event.at:
            continue
        changes = bisect_right(leads, event.at)
        since = max(death, leads[changes - 1] if changes else 0)
        late = (event.at - since) / 1e9 - ttl_seconds - SLACK_SECONDS
        if late > 0 and event.handle not in told:
            told.add(event.handle)
            yield f"{event.handle}, which is dead, {event.kind} {late:.1f}s longer than it may"


def _failed(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event.kind == "failed":
            yield f"{event.handle} {event.name}"
