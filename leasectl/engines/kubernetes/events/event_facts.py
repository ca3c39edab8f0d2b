"""The events of each step of an acquisition.

Who is before whom is told by times: each is taken before the write that the event tells of, so by
one clock nothing comes before what it came of. Times between two dates are never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasectl.engines.event_words import (
    AGAINST_ITS_WILL,
    handle_of,
    of_claimant,
    short,
    wanted,
)
from leasectl.engines.kubernetes.objects.objects import Claim, ResourceObject, TicketObject
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.event import Event, EventKind

# What more names than that are nobody reads in an event; the number of them is there as well.
_MOST_NAME_CHARACTERS = 50_000


def queued(claimant: Claimant, *, ticket: int, now: float) -> Event:
    """A ticket is put.

    Args:
        claimant: Whose.
        ticket: Its number.
        now: Wall clock, in seconds; so it is below.
    """
    return of_claimant("queued", claimant, now)._replace(ticket=ticket)


def granted(claimant: Claimant, leases: Sequence[Lease], *, waited: float) -> Event:
    """A ticket has become leases, after so many seconds."""
    first = leases[0]
    return of_claimant("granted", claimant, first.acquire_time)._replace(
        names=tuple(each.name for each in leases),
        fences=tuple(each.fence for each in leases),
        ticket=first.ticket,
        grant=first.grant,
        wait_seconds=max(0.0, waited),
    )


def withdrawn(ticket: TicketObject, *, now: float, why: str) -> Event:
    """Somebody else takes a ticket away."""
    handle, acquisition = handle_of(ticket.claim_key)
    return Event(
        0,
        now,
        "gave up",
        ticket.pool,
        wanted(ticket.want.name),
        handle=handle,
        acquisition=acquisition,
        holder_identity=ticket.holder_identity,
        count=ticket.count,
        priority=ticket.priority,
        ticket=ticket.place,
        wait_seconds=max(0.0, now - ticket.since),
        reason=short(why),
    )


def alike(resources: Iterable[ResourceObject]) -> list[list[ResourceObject]]:
    """Those of one claim together, as they are told of at once; without what nobody holds."""
    together: dict[tuple[str, str, int], list[ResourceObject]] = {}
    for each in resources:
        if each.claim is not None and each.claim.claim_key and each.member.pool is not None:
            which = (each.member.pool, each.claim.claim_key, each.claim.grant)
            together.setdefault(which, []).append(each)
    return list(together.values())


def lost(
    resources: Sequence[ResourceObject], *, by: ReleasedBy, now: float, reason: str = ""
) -> Event:
    """Resources of one claim aren't its holder's any more, against its will."""
    return _of_claim("lost", resources, by, now, reason)


def ended(
    resources: Sequence[ResourceObject], *, by: ReleasedBy, now: float, reason: str = ""
) -> list[Event]:
    """Resources of one claim are free or gone, and lost just now unless its holder meant that.

    Args:
        resources: As they were before that.
        by: Who ends it; what was ended by force is over by that, whoever frees it.
        now: Wall clock, in seconds.
        reason: For people.
    """
    was_ended = any(each.claim is not None and each.claim.ended for each in resources)
    if was_ended:
        by = "force"
    is_lost = by in AGAINST_ITS_WILL and not was_ended
    losses = [lost(resources, by=by, now=now, reason=reason)] if is_lost else []
    return [*losses, _of_claim("released", resources, by, now, reason)]


def noted(resource: ResourceObject, *, now: float, text: str) -> Event:
    """Something is noted at a claim of a resource, of which that is told."""
    event = _of_claim("noted", [resource], "command", now, text)
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
    is_short = sum(map(len, names)) <= _MOST_NAME_CHARACTERS
    return Event(
        0,
        now,
        kind,
        pool_type,
        tuple(names) if is_short else (),
        holder_identity=caller,
        count=len(names),
        reason=short(reason),
    )


def _of_claim(
    kind: EventKind,
    resources: Sequence[ResourceObject],
    by: ReleasedBy,
    now: float,
    reason: str,
) -> Event:
    claims = [each.claim for each in resources if each.claim is not None]
    first: Claim = claims[0]
    handle, acquisition = handle_of(first.claim_key)
    return Event(
        0,
        now,
        kind,
        str(resources[0].member.pool),
        tuple(each.name for each in resources),
        tuple(each.fence for each in claims),
        handle=handle,
        acquisition=acquisition,
        holder_identity=first.holder_identity,
        count=len(resources),
        ticket=first.place,
        grant=first.grant,
        hold_seconds=max(0.0, now - first.acquire_time),
        by=by,
        reason=short(reason),
    )
