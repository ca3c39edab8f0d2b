"""What hands have done to the Leases in a namespace, as far as it shows."""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.kubernetes.objects.bodies import Body, new_pool
from leasectl.engines.kubernetes.objects.edited import as_it_counts
from leasectl.engines.kubernetes.objects.names import object_of_pool
from leasectl.engines.kubernetes.objects.objects import (
    PLACE,
    Json,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.kubernetes.objects.reading import (
    annotations_of,
    identity_of,
    kind_of,
    parse_object,
)
from leasectl.engines.kubernetes.objects.recognition import is_made_by
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.text.printable import printable
from leasectl.text.wording import counted, listed
from leasectl.typed.tuples import NamedTuple


class _Found(NamedTuple):
    """What is in a namespace, and what of it nobody of ours has left so.

    Args:
        what: How much there is, in words.
        edited: What was edited, as it is to be written again.
        damaged: What can't be read, by its object.
        held_by_others: Resources whose holder isn't of leasectl.
        ending: Pools that somebody has begun to delete.
        orphaned: Pools that aren't there, and have resources.
    """

    what: str
    edited: tuple[Body, ...]
    damaged: tuple[str, ...]
    held_by_others: tuple[str, ...]
    ending: tuple[str, ...]
    orphaned: tuple[str, ...]


def objects(store: Store) -> Finding:
    """Is all there and as we wrote it, whatever was edited or deleted by hand?"""
    found = _found(store)
    if not any(found[1:]):
        return Finding(OK, found.what)
    parts, advice = [], ""
    if found.held_by_others:
        parts.append(f"held by what isn't leasectl: {listed(found.held_by_others)}")
        where = f"kubectl edit lease -n {store.collection.namespace} NAME"
        advice = f"nobody gets them before that ends; take its holderIdentity out with: {where}"
    if found.ending:
        types = listed(found.ending)
        parts.append(f"somebody is making or deleting, or was killed at it: pool {types}")
        advice = f"if it stays so, end it with: leasectl pool delete {found.ending[0]}"
    if found.damaged:
        parts.append(f"edited, and of no use any more: {listed(found.damaged)}")
        where = f"-n {store.collection.namespace}"
        advice = f"look with: kubectl get lease {where} -o yaml NAME, mend or delete it"
    if found.edited:
        names = [_name(each) for each in found.edited]
        parts.append(f"labels or fields edited, which don't count: {listed(names)}")
    if found.orphaned:
        parts.append(f"deleted, with resources left: pool {listed(found.orphaned)}")
    if not (found.edited or found.orphaned):
        return Finding(WARN, "; ".join(parts), advice)
    run = "run: leasectl doctor --fix"
    return Finding(
        WARN,
        "; ".join(parts),
        f"{advice}; and {run}" if advice else run,
        mend=lambda: _mend(store, found),
    )


def _mend(store: Store, found: _Found) -> str:
    written = [
        _name(body)
        for body in found.edited
        if store.change(body, lambda raw: as_it_counts(raw) is None).raw is not None
    ]
    parts = [f"written again: {listed(written) or 'nothing'}"] if found.edited else []
    if found.orphaned:
        parts.append(_make_again(store, found.orphaned))
    return "; ".join(parts)


def _make_again(store: Store, types: tuple[str, ...]) -> str:
    for each in types:
        body = new_pool(each, NO_SETTINGS)
        store.create(body, is_made_by(body))
    return f"made again, without pace and ageing: pool {listed(types)}"


def _found(store: Store) -> _Found:
    edited: list[Body] = []
    items = []
    for raw in store.everything().items:
        body = as_it_counts(raw)
        if body is not None:
            edited.append(body)
        if body is not None or kind_of(raw):
            items.append(body or raw)
    found = list(map(parse_object, items))
    pools = [each for each in found if isinstance(each, PoolObject)]
    resources = [each for each in found if isinstance(each, ResourceObject)]
    tickets = [each for each in found if isinstance(each, TicketObject)]
    damaged = [each.id.name for each in tickets if _is_edited(each)]
    damaged += [f"{each.id.name} ({each.why})" for each in found if isinstance(each, Unreadable)]
    held = [each for each in resources if each.claim is not None]
    there = {identity_of(each).name for each in items}  # a pool that can't be read is there, too
    in_pools = {each.member.pool for each in resources if each.member.pool is not None}
    others = [each.name for each in held if each.claim is not None and not each.claim.claim_key]
    what = f"{counted(len(pools), 'pool')}, {len(held)} held, {len(tickets)} waiting"
    return _Found(
        what,
        tuple(edited),
        tuple(printable(each, longest=300) for each in damaged),
        tuple(others),
        tuple(each.type for each in pools if each.state != "open"),
        tuple(sorted(each for each in in_pools if object_of_pool(each) not in there)),
    )


def _is_edited(ticket: TicketObject) -> bool:
    """Tell whether somebody else has written a ticket, as far as that shows.

    Until its first renewal, which writes its place down, the server tells how many have written it.
    """
    place = annotations_of(ticket.raw).get(PLACE)
    if not ticket.claim_key:
        return True
    if place is None:
        return len(ticket.raw["metadata"].get("managedFields") or ()) > 1
    return bool(str(ticket.place) != place)


def _name(raw: Json) -> str:
    return printable(identity_of(raw).name, longest=253)
