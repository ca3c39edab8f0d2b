"""The events of each step of an acquisition.

Times between two dates are never negative, whatever clocks say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leasectl.engines.etcd.records import Claim
from leasectl.engines.event_words import (
    AGAINST_ITS_WILL,
    handle_of,
    of_claimant,
    short,
    wanted,
)
from leasectl.engines.facts import QueueEntry
from leasectl.model import Claimant, ReleasedBy, Ticket
from leasectl.state.event import Event, EventKind

# More names than that nobody reads in an event; the number of them is there as well.
_MOST_NAMES = 1000


def queued(claimant: Claimant, *, now: float) -> Event:
    """A ticket is put; its number is what the event is read at.

    Args:
        claimant: Whose.
        now: Wall clock, in seconds; so it is below.
    """
    return of_claimant("queued", claimant, now)


def granted(ticket: Ticket, claim: Claim, *, waited: float) -> Event:
    """A ticket becomes a claim, after so many seconds; its fences are what the event is read at."""
    return of_claimant("granted", ticket.claimant, claim.acquire_time)._replace(
        names=claim.names, ticket=ticket.number, grant=claim.grant, wait_seconds=max(0.0, waited)
    )


def withdrawn(pool_type: str, entry: QueueEntry, *, now: float, why: str) -> Event:
    """Somebody else takes a ticket away, whose claim key is with its state id."""
    handle, acquisition = handle_of(entry.claim_key)
    return Event(
        0,
        now,
        "gave up",
        pool_type,
        wanted(entry.name),
        handle=handle,
        acquisition=acquisition,
        holder_identity=entry.holder_identity,
        count=entry.count,
        priority=entry.priority,
        ticket=entry.ticket,
        wait_seconds=max(0.0, now - entry.since),
        reason=short(why),
    )


def lost(
    pool_type: str,
    claim: Claim,
    names: Collection[str],
    *,
    by: ReleasedBy,
    now: float,
    reason: str = "",
) -> Event:
    """Some names of a claim aren't its holder's any more, against its will."""
    return _of_claim("lost", pool_type, claim, names, by, now, reason)


def ended(
    pool_type: str,
    claim: Claim,
    names: Collection[str],
    *,
    by: ReleasedBy,
    now: float,
    reason: str = "",
) -> list[Event]:
    """Some names of a claim are free or gone, and lost just now unless its holder meant that."""
    is_lost = by in AGAINST_ITS_WILL and not claim.ended
    losses = [lost(pool_type, claim, names, by=by, now=now, reason=reason)] if is_lost else []
    return [*losses, _of_claim("released", pool_type, claim, names, by, now, reason)]


def noted(pool_type: str, claim: Claim, name: str, *, now: float, told: str) -> Event:
    """Something is noted at a claim of a resource, of which that is told."""
    event = _of_claim("noted", pool_type, claim, (name,), "command", now, told)
    return event._replace(hold_seconds=None, by="")


def of_pool(
    kind: EventKind,
    pool_type: str,
    names: Sequence[str],
    *,
    now: float,
    caller: str,
    reason: str,
) -> Event:
    """A pool is made, changed or deleted, and some names with it."""
    return Event(
        0,
        now,
        kind,
        pool_type,
        tuple(names) if len(names) <= _MOST_NAMES else (),
        holder_identity=caller,
        count=len(names),
        reason=reason,
    )


def _of_claim(
    kind: EventKind,
    pool_type: str,
    claim: Claim,
    names: Collection[str],
    by: ReleasedBy,
    now: float,
    reason: str,
) -> Event:
    handle, acquisition = handle_of(claim.claim_key)
    ended = claim.without(frozenset(claim.names) - frozenset(names))
    return Event(
        0,
        now,
        kind,
        pool_type,
        ended.names,
        ended.fences,
        handle=handle,
        acquisition=acquisition,
        holder_identity=claim.holder_identity,
        count=len(ended.names),
        ticket=claim.ticket,
        grant=claim.grant,
        hold_seconds=max(0.0, now - claim.acquire_time),
        by=by,
        reason=short(reason),
    )
