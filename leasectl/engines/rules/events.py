"""The parts of events, and the texts they are shown with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Member, Pools, leaves_no_more, stays_after_all
from leasectl.model import Claimant, ReleasedBy
from leasectl.state.event import Event, EventKind
from leasectl.text.durations import format_seconds
from leasectl.text.naming import build_url_in
from leasectl.text.wording import counted

# What ends by these its holder didn't mean to end.
AGAINST_ITS_WILL: tuple[ReleasedBy, ...] = ("ttl", "force", "removal")
_LONGEST_REASON = 300
# Why a ticket was given up, where its waiter didn't do so itself.
WITHDRAWN = "released while it waited"
WAITER_DIED = "its process ended"
NOT_ANSWERED = "its server didn't answer"
POOL_DELETED = "the pool was deleted"
# How a lease ended.
_HOW: dict[str, str] = {
    "command": "by leasectl release",
    "delay": "at its release time",
    "guard": "because its guard ended",
    "run": "because its leasectl run ended",
    "ttl": "because its ttl expired",
    "force": "by force",
    "removal": "because it was removed from the pool",
    "reclaim": "by a reclaim",
}
_GOT = "got a lease of "
_ADDED, _REMOVED = " added", " removed"


def of_claimant(kind: EventKind, claimant: Claimant, now: float) -> Event:
    """Return an event of a claimant.

    Args:
        kind: What happened.
        claimant: The request and its holder.
        now: Wall clock, in seconds; so it is below.
    """
    handle, acquisition = handle_of(f"/{claimant.claim_key}")
    request = claimant.request
    return Event(
        0,
        now,
        kind,
        request.type,
        wanted(request.name),
        handle=handle,
        acquisition=acquisition,
        holder_identity=claimant.holder_identity,
        count=request.count,
        priority=request.priority,
        build_url=build_url_in(request.labels),
    )


def gave_up(claimant: Claimant, *, ticket: int, now: float, waited: float, why: str) -> Event:
    """A ticket is taken away that became nothing, after so many seconds."""
    return of_claimant("gave up", claimant, now)._replace(
        ticket=ticket, wait_seconds=max(0.0, waited), reason=short(why)
    )


def handle_of(claim_key: str) -> tuple[str, int]:
    """The handle and the acquisition that a claim key with its state id stands for."""
    _, _, key = claim_key.partition("/")
    handle, _, acquisition = key.rpartition("/")
    if handle and acquisition.isdecimal() and acquisition.isascii():
        return handle, int(acquisition)
    return key, 0


def wanted(name: str | None) -> tuple[str, ...]:
    """The one resource that a ticket waits for, where it does."""
    return () if name is None else (name,)


def short(reason: str) -> str:
    """Why something happened, no longer than anybody reads."""
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"


def got_instead(pool_type: str) -> str:
    """Return why a request for either of several types left a queue."""
    return f"{_GOT}{pool_type} instead"


def is_got_instead(reason: str) -> bool:
    """Tell whether that was why: the request ended with a grant."""
    return reason.startswith(_GOT)


def why_withdrawn(by: ReleasedBy) -> str:
    """Why a request was taken out of the queue, by who or what did that."""
    return WAITER_DIED if by == "guard" else WITHDRAWN


def how_ended(by: str) -> str:
    """Return in words what released a lease, by the name that its event has for that."""
    return _HOW.get(by, f"by {by}")


def why_left(by: ReleasedBy) -> str:
    """Why a request was left in the queue whose handle waits no more, by who takes it away now."""
    return WAITER_DIED if by in ("guard", "run") else NOT_ANSWERED


def pool_made(count: int, settings: PoolSettings) -> str:
    """What a new pool is like: its resources and how it grants."""
    return f"{counted(count, 'resource')}, {_settings(settings)}"


def gained(event: Event) -> int:
    """How many resources more a pool has by an event of it; less than 0 for fewer."""
    if event.kind == "pool made" or event.reason.endswith(_ADDED):
        return event.count
    if event.kind == "pool deleted" or event.reason.endswith(_REMOVED):
        return -event.count
    return 0


def settings_changed(before: PoolSettings, after: PoolSettings) -> str:
    """How a pool grants from now on, and how it did."""
    return f"{_settings(after)}; before: {_settings(before)}"


class MembershipChange(NamedTuple):
    """What has become of some names of a pool, as one event has it.

    Args:
        type: The pool.
        names: Which.
        reason: For people.
    """

    type: str
    names: tuple[str, ...]
    reason: str


def membership_changes(
    before: Sequence[Member], after: Sequence[Member]
) -> tuple[MembershipChange, ...]:
    """Return the events of changed memberships; unimportant changes have none.

    Args:
        before: Each membership before.
        after: Each membership after, in the same order.
    """
    together: dict[tuple[str, str], list[str]] = {}
    for old, new in zip(before, after):
        for pool_type, what in _changes(old, new):
            together.setdefault((pool_type, what), []).append(new.name)
    return tuple(
        MembershipChange(pool_type, tuple(names), f"{counted(len(names), 'resource')}{what}")
        for (pool_type, what), names in together.items()
    )


def belonging_changes(before: Pools, after: Pools) -> tuple[MembershipChange, ...]:
    """What has become of the default pool and of patterns, as events of the pools they are about.

    Args:
        before: What was said beside pools.
        after: What is said there now.
    """
    found = (*_default_changes(before, after), *_pattern_changes(before, after))
    return tuple(MembershipChange(pool_type, (), what) for pool_type, what in found)


def _default_changes(before: Pools, after: Pools) -> Iterator[tuple[str, str]]:
    is_same = before.default == after.default
    if before.default is not None and not is_same:
        yield before.default, "no longer the default pool"
    if after.default is None or (is_same and before.grace_seconds == after.grace_seconds):
        return
    was = _grace(before) if is_same else before.default or "none"
    yield after.default, f"the default pool, {_grace(after)}; before: {was}"


def _grace(pools: Pools) -> str:
    return f"grace {format_seconds(pools.grace_seconds)}" if pools.grace_seconds else "no grace"


def _pattern_changes(before: Pools, after: Pools) -> Iterator[tuple[str, str]]:
    for pattern, pool_type in sorted(before.patterns.items()):
        if after.patterns.get(pattern) != pool_type:
            yield pool_type, f'"{pattern}" no longer expected'
    for pattern, pool_type in sorted(after.patterns.items()):
        if before.patterns.get(pattern) != pool_type:
            yield pool_type, f'"{pattern}" expected'


def _changes(old: Member, new: Member) -> Iterator[tuple[str, str]]:
    if new.expected != old.expected:
        if old.expected is not None:
            yield old.expected, " no longer expected"
        if new.expected is not None:
            yield new.expected, " expected"
    if old.pool != new.pool:
        if old.pool is not None:
            yield old.pool, _REMOVED if new.pool is None else f" moved to {new.pool},{_REMOVED}"
        if new.pool is not None:
            yield new.pool, _ADDED if old.pool is None else f" moved here from {old.pool},{_ADDED}"
    if new.pool is None:
        return
    if (new.cordoned, new.cordon) != (old.cordoned, old.cordon):
        why = f" ({new.cordon.reason})" if new.cordon and new.cordon.reason else ""
        yield new.pool, f" cordoned{why}" if new.cordoned else " uncordoned"
    if new.moves_to != old.moves_to and new.moves_to is not None:
        yield new.pool, f" to go to {new.moves_to} when free"
    if stays_after_all(old, new):
        yield new.pool, f" no longer to go to {old.moves_to}"
    if new.leaves and not old.leaves and old.pool == new.pool:
        yield new.pool, " to leave when free"
    if leaves_no_more(old, new):
        yield new.pool, " no longer to leave"
    if new.properties != old.properties and old.pool is not None:
        yield new.pool, " with other properties"


def _settings(settings: PoolSettings) -> str:
    pace = f"pace {format_seconds(settings.pace_seconds)}" if settings.pace_seconds else "no pace"
    burst = f", burst {settings.burst}" if settings.burst != 1 else ""
    aging = f", aging {format_seconds(settings.aging_seconds)}" if settings.aging_seconds else ""
    return f"{pace}{burst}{aging}"
