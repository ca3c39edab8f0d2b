"""What can be found out about a cluster of Kubernetes: which, as whom, and is all as we left it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from leasectl.doctor.findings import FAIL, OK, WARN, Check, Finding, failure
from leasectl.doctor.memberships import agreement_of
from leasectl.doctor.server_claims import agreement
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.kubernetes.api.address import parse_kubernetes_url
from leasectl.engines.kubernetes.api.choice import ClusterChoice, choose, parse_choice
from leasectl.engines.kubernetes.api.opening import open_api
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.rights import how_to_permit, is_of_events, needed_in
from leasectl.engines.kubernetes.api.standing import (
    what_kubectl_would_take,
    what_we_may_not,
    who_we_are,
)
from leasectl.engines.kubernetes.bodies import new_pool
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import (
    PLACE,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.engines.kubernetes.reading import annotations_of, identity_of, parse_object
from leasectl.engines.kubernetes.recognition import is_made_by
from leasectl.engines.kubernetes.store import Store
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.system.clock import Clock
from leasectl.text.printable import printable
from leasectl.text.wording import counted, listed

DEADLINE_SECONDS = 3.0


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """The checks of a cluster that need no state directory; when one fails, so do the rest."""
    try:
        choice = choose(parse_kubernetes_url(url), environment)
    except LeaseError as error:
        found = failure("cluster", error)
        return [Check("cluster", lambda: found)]
    opened = _open(choice, "")
    return [
        Check("cluster", lambda: cluster(choice)),
        Check("kubectl", lambda: kubectl(choice, environment)),
        Check("cluster user", lambda: user(opened.api)),
        Check("cluster rights", lambda: rights(opened.api, choice.namespace)),
        Check("cluster objects", lambda: objects(opened.store)),
    ]


def checks_of_claims(service: Service, settings: Settings) -> list[Check]:
    """The checks of what a state directory holds in the cluster that its settings name."""
    if settings.cluster is None:
        return []
    state_id = service.state.state_id()
    opened = _open(parse_choice(settings.cluster), state_id)
    return [
        Check("cluster claims", lambda: claims(service, opened, state_id)),
        Check("cluster names", lambda: names(opened)),
    ]


def _open(choice: ClusterChoice, state_id: str) -> Opened:
    clock = Clock()
    api = open_api(choice, clock=clock, deadline_seconds=DEADLINE_SECONDS)
    return open_kubernetes(
        api,
        choice.namespace,
        state_id=state_id,
        lost=lambda claim_key, names: None,
        clock=clock,
    )


def cluster(choice: ClusterChoice) -> Finding:
    """Which cluster and namespace, where is that written, and why there?"""
    what = f'{choice.server}, namespace "{choice.namespace}", by {choice.found}: {choice.why}'
    if choice.warning:
        return Finding(WARN, f"{what}; {choice.warning}", "have its certificate be verified")
    return Finding(OK, what)


def kubectl(choice: ClusterChoice, environment: Mapping[str, str]) -> Finding:
    """Does KUBECONFIG name another cluster?"""
    theirs = what_kubectl_would_take(environment)
    if theirs is None:
        return Finding(OK, "there is nothing that it would take")
    if theirs.server == choice.server:
        return Finding(OK, "it would take the same cluster")
    what = f"it would take another cluster: {theirs.server}, by {theirs.found}"
    if theirs.chosen_by != "KUBECONFIG":
        return Finding(OK, what)
    return Finding(
        WARN,
        f"{what}, which KUBECONFIG names",
        "that is as it should be where KUBECONFIG is of a cluster under test; to lease there, "
        "name it in LEASECTL_KUBECONFIG",
    )


def user(api: Api) -> Finding:
    """As whom do we come?"""
    return Finding(OK, who_we_are(api))


def rights(api: Api, namespace: str) -> Finding:
    """May we do what leases take?"""
    missing = what_we_may_not(api, needed_in(namespace))
    if not missing:
        return Finding(OK, f'all that leases take in namespace "{namespace}"')
    what = f"we may not {', '.join(f'{each.verb} {each.resource}' for each in missing)}"
    advice = how_to_permit(who_we_are(api), missing[0])
    if all(map(is_of_events, missing)):
        return Finding(WARN, f"{what}: leases are had, and nothing is told of them", advice)
    return Finding(FAIL, what, advice, exit_code=NotAllowed.exit_code)


class _Found(NamedTuple):
    """What is in a namespace, and what of it nobody of ours has left so.

    Args:
        what: How much there is, in words.
        damaged: What can't be read, by its object.
        held_by_others: Resources whose holder isn't of leasectl.
        ending: Pools that somebody has begun to delete.
        orphaned: Pools that aren't there, and have resources.
    """

    what: str
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
        advice = "nobody gets them before that ends; see with: kubectl get leases"
    if found.ending:
        parts.append(f"somebody is deleting, or was killed at it: pool {listed(found.ending)}")
        advice = "if it stays so: leasectl pool create TYPE --names A ends that, then delete it"
    if found.damaged:
        parts.append(f"edited, and of no use any more: {listed(found.damaged)}")
        where = f"-n {store.collection.namespace}"
        advice = f"look with: kubectl get lease {where} -o yaml NAME, mend or delete it"
    if not found.orphaned:
        return Finding(WARN, "; ".join(parts), advice)
    parts.append(f"deleted, with resources left: pool {listed(found.orphaned)}")
    return Finding(
        WARN,
        "; ".join(parts),
        f"{advice}; and run: leasectl doctor --fix" if advice else "run: leasectl doctor --fix",
        mend=lambda: _make_again(store, found.orphaned),
    )


def _make_again(store: Store, types: tuple[str, ...]) -> str:
    for each in types:
        body = new_pool(each, NO_SETTINGS)
        store.create(body, is_made_by(body))
    return f"made again, without pace and ageing: pool {listed(types)}"


def _found(store: Store) -> _Found:
    items = store.all().items
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
        tuple(printable(each, longest=300) for each in damaged),
        tuple(others),
        tuple(each.type for each in pools if each.deleting),
        tuple(sorted(each for each in in_pools if object_of_pool(each) not in there)),
    )


def _is_edited(ticket: TicketObject) -> bool:
    """Tell whether somebody else has written a ticket, as far as that shows."""
    place = annotations_of(ticket.raw).get(PLACE)
    return not ticket.claim_key or (place is not None and str(ticket.place) != place)


def claims(service: Service, opened: Opened, state_id: str) -> Finding:
    """Do the claims of this state directory and its handles agree?"""

    def claim_keys() -> list[str]:
        found = map(parse_object, opened.store.all("resource").items)
        held = (each.claim for each in found if isinstance(each, ResourceObject))
        written = (each.claim_key for each in held if each is not None)
        ours = (each for each in written if each.startswith(f"{state_id}/"))
        return list(dict.fromkeys(map(opened.store.claim_key_of, ours)))

    return agreement(service, "the cluster", claim_keys, opened.engine.free)


def names(opened: Opened) -> Finding:
    """Is every name where it belongs? Only looked at: what is over stays."""
    known = opened.members.known()
    members = [each.member for each in known.resources.values()]
    there = [each for each in members if each.pool is not None]
    return agreement_of(there, known.pools, members)
