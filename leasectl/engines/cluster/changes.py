"""What a write makes of an object: pure functions from one fact to the next."""

from __future__ import annotations

from leasectl.engines.cluster.objects import (
    BelongingObject,
    Change,
    Claim,
    ContentObject,
    Found,
    Identity,
    PoolObject,
    PoolState,
    ResourceObject,
    TicketObject,
    is_same,
    new_word,
    stamp,
)
from leasectl.engines.cluster.records import safe_text
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Member, Pools, grace_clock, lifetime_clock
from leasectl.engines.rules.possible import want_of
from leasectl.model import Claimant

# Resources


def new_resource(object_name: str, member: Member, *, grace_seconds: float = 0.0) -> ResourceObject:
    """Return a name without a holder, in a pool or only expected in one.

    Args:
        object_name: Of the new object.
        member: What is so of it.
        grace_seconds: If it comes to the default pool: for so long it isn't granted there.
    """
    nothing = ResourceObject(Identity(object_name), None, Member(member.name))
    return with_member(nothing, member, grace_seconds=grace_seconds)


def with_member(
    resource: ResourceObject, member: Member, *, grace_seconds: float = 0.0
) -> ResourceObject:
    """Return a resource with another membership; the arguments are those of `new_resource`."""
    joined, grace, came = resource.joined, resource.grace_seconds, resource.came
    lifetime = lifetime_clock(resource.member, member)
    if lifetime != "kept":
        joined = new_word() if lifetime == "started" else ""
    clock = grace_clock(resource.member, member)
    if clock != "kept":
        is_held_back = clock == "started" and bool(grace_seconds)
        grace, came = (grace_seconds, new_word()) if is_held_back else (None, "")
    return resource._replace(
        member=member,
        grace_seconds=grace,
        came=came,
        joined=joined,
        entering="",
        made=new_word(),
    )


def touched(resource: ResourceObject) -> ResourceObject:
    """Return the same as another version, so that a write by an older version is refused."""
    return resource._replace(changed=new_word())


def claimed(resource: ResourceObject, claim: Claim) -> ResourceObject:
    """Return a resource with a new claim instead of any earlier one."""
    return resource._replace(
        claim=claim,
        fence=claim.fence,
        last_holder=claim.holder_identity,
        transitions=claim.transitions,
        last_tickets=(),
    )


def revoked(resource: ResourceObject, reason: str, life: str = "") -> ResourceObject:
    """Return a resource whose claim was ended by force, and is kept for its holder for its time.

    Its renewal time stays: an observer continues to count from there. Where claims end by
    themselves, it gets a new life for the time that is left, which isn't kept alive.
    """
    assert resource.claim is not None
    return resource._replace(claim=resource.claim._replace(ended=safe_text(reason), life=life))


def noted(
    resource: ResourceObject, text: str | None, *, renewal: Claim | None = None
) -> ResourceObject:
    """Return a resource with another note at its claim.

    Args:
        resource: As it was seen.
        text: What is noted; None for nothing.
        renewal: The claim with its full time again; None to leave it as it is.
    """
    claim = renewal or resource.claim
    assert claim is not None
    by = "" if text is None else new_word()
    return resource._replace(claim=claim._replace(note=text, note_by=by))


def released(resource: ResourceObject, member: Member, *, is_had: bool = True) -> ResourceObject:
    """Return a resource without its claim.

    Args:
        resource: As it was seen.
        member: What is so of it after that.
        is_had: Its holder got what it had waited for: the ticket, if it is still there, waits
            for nothing any more.
    """
    claim, tickets = resource.claim, resource.last_tickets
    if claim is not None:
        tickets = resource.had_by if is_had else claim.left
    free = resource._replace(claim=None, last_tickets=tickets, freed=new_word())
    return with_member(free, member)


# Tickets


def new_ticket(
    object_name: str,
    claimant: Claimant,
    claim_key: str,
    *,
    ttl_seconds: float,
    wall: float,
    life: str,
    order: int = 0,
) -> TicketObject:
    """Return a ticket that is about to be put.

    Args:
        object_name: Of the new object.
        claimant: Who waits, for what.
        claim_key: Of the claimant, with its state id.
        ttl_seconds: After so long without a renewal it is dead.
        wall: Wall clock, in seconds.
        life: What it is kept alive by; empty where tickets don't end by themselves.
        order: As `TicketObject` has it.
    """
    request = claimant.request
    return TicketObject(
        Identity(object_name),
        None,
        request.type,
        0,
        order,
        claim_key=claim_key,
        holder_identity=claimant.holder_identity,
        ttl_seconds=ttl_seconds,
        renewed=stamp(wall),
        want=want_of(request),
        count=request.count,
        priority=request.priority,
        counts_as=request.priority,
        since=wall,
        pid=claimant.process.pid if claimant.process else None,
        labels=request.labels,
        process=claimant.process,
        life=life,
    )


def renewed_ticket(ticket: TicketObject, *, wall: float, counts_as: int) -> TicketObject:
    """Return a ticket whose waiter lives."""
    return ticket._replace(renewed=stamp(wall, after=ticket.renewed), counts_as=counts_as)


def parked_ticket(ticket: TicketObject, is_parked: bool, *, wall: float) -> TicketObject:
    """Return a ticket that others may pass, or may no longer; its waiter lives."""
    renewed = renewed_ticket(ticket, wall=wall, counts_as=ticket.counts_as)
    return renewed._replace(is_parked=is_parked)


# Pools


def new_pool(
    object_name: str,
    pool_type: str,
    settings: PoolSettings,
    *,
    state: PoolState = "open",
    word: str = "",
    floor: int = 0,
) -> PoolObject:
    """Return a pool with nothing in it; it is there at once, unless it is still being made.

    Args:
        object_name: Of the new object.
        pool_type, settings: Of the pool.
        state, word: As `PoolObject` has them.
        floor: Its fences are above that version; 0 where the store was never restored.
    """
    return PoolObject(
        Identity(object_name), None, pool_type, settings, state, word, floor=floor, made=new_word()
    )


def with_changes(pool: PoolObject, *, coming: bool = False) -> PoolObject:
    """Return a pool by which waiters far behind learn that it may meet less, or that names come."""
    return pool._replace(changed=new_word(), coming=pool.coming or coming)


def with_belonging(
    before: BelongingObject | None, object_name: str, pools: Pools, *, pending: Pools | None = None
) -> BelongingObject:
    """Return the object of default pool and patterns, with a pending change of them."""
    if before is None:
        before = BelongingObject(Identity(object_name), None, pools)
    return before._replace(pools=pools, pending=pending, made=new_word())


# Lost answers

# What a write changes together, of a pool and of other objects. A grant has to be compared with
# its level: the same ticket may pay twice, and another may have paid up to the same level since.
_FACTS = (
    ("settings",),
    ("state", "word"),
    ("level", "last_grant"),
    ("changed", "coming"),
    ("epoch", "floor"),
    ("made",),
)


def is_carried_out(change: Change, found: Found) -> bool:
    """Return whether an object shows that a change was carried out, also if written since.

    It is known by what only this change has written. A release isn't found any more where the
    resource was claimed and freed again since.
    """
    seen, new = change.seen, change.new
    if isinstance(new, ResourceObject):
        before = seen if isinstance(seen, ResourceObject) else None
        return isinstance(found, ResourceObject) and _is_so(before, new, found)
    if isinstance(new, TicketObject):
        if seen is None:  # nobody else can guess its name
            return found.id.name == new.id.name
        return isinstance(found, TicketObject) and found.renewed == new.renewed
    if isinstance(new, ContentObject):
        return isinstance(found, ContentObject) and found.said.content == new.said.content
    if seen is None or new is None:
        return new is not None and getattr(found, "made", None) == getattr(new, "made", "")
    changed = [each for each in _FACTS if _facts(each, seen) != _facts(each, new)]
    is_same_kind = isinstance(found, type(new))
    return is_same_kind and all(_facts(each, found) == _facts(each, new) for each in changed)


def _facts(names: tuple[str, ...], found: Found) -> list[object]:
    return [getattr(found, each, None) for each in names]


def _is_so(seen: ResourceObject | None, new: ResourceObject, found: ResourceObject) -> bool:
    before, claim, there = seen and seen.claim, new.claim, found.claim
    if claim is None or claim == before:
        for word in ("freed", "made", "entering", "changed"):
            if getattr(new, word) != getattr(seen, word, ""):
                return bool(getattr(found, word) == getattr(new, word))
        return False
    if there is None:
        return False
    if before is None or (before.claim_key, before.ticket) != (claim.claim_key, claim.ticket):
        return (there.claim_key, there.ticket) == (claim.claim_key, claim.ticket)
    if not is_same(there, claim):
        return False
    if claim.note_by != before.note_by or claim.note != before.note:
        return (there.note, there.note_by) == (claim.note, claim.note_by)
    if claim.ended != before.ended:
        return there.ended == claim.ended
    return there.renewed == claim.renewed
