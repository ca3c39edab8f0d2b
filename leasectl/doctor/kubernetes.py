"""Check a Kubernetes backend: access, rights, objects edited by hand."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from leasectl.doctor.findings import Checks, Finding, circular, fail, failure, ok, warn
from leasectl.doctor.holders import agreement, memberships_of
from leasectl.engines.cluster.changes import new_pool
from leasectl.engines.cluster.objects import (
    Change,
    PoolObject,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.kubernetes.api.address import parse_kubernetes_url
from leasectl.engines.kubernetes.api.choice import ClusterChoice, choose, parse_choice
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.rights import how_to_permit, is_of_events, needed_in
from leasectl.engines.kubernetes.api.standing import (
    check_namespace,
    what_kubectl_would_take,
    what_we_may_not,
    who_we_are,
)
from leasectl.engines.kubernetes.edited import as_it_counts
from leasectl.engines.kubernetes.encoding import (
    Body,
    annotations_of,
    identity_of,
    kind_of,
    parse_object,
)
from leasectl.engines.kubernetes.names import PLACE, Json, object_of_pool
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.system.clock import Clock
from leasectl.text.wording import counted, listed, printable


class _Found(NamedTuple):
    """The objects in a namespace, and those that a user or another program has changed.

    Args:
        what: How much there is, in words.
        edited: Edited objects, as they are to be written again.
        damaged: Why an object can't be read, by the object.
        held_by_others: Resources whose holder isn't of leasectl.
        ending: Pools whose deletion has begun.
        orphaned: Missing pools that still have resources.
    """

    what: str
    edited: tuple[Body, ...]
    damaged: tuple[str, ...]
    held_by_others: tuple[str, ...]
    ending: tuple[str, ...]
    orphaned: tuple[str, ...]


def objects(store: KubernetesObjects) -> Finding:
    """Is all there and as we wrote it, whatever was edited or deleted by hand?"""
    found = _found(store)
    if not any(found[1:]):
        return ok(found.what)
    parts, advice = [], ""
    if found.held_by_others:
        parts.append(f"held by another program: {listed(found.held_by_others)}")
        where = f"kubectl edit lease -n {store.collection.namespace} NAME"
        advice = f"if that program is gone, remove the holderIdentity with: {where}"
    if found.ending:
        types = listed(found.ending)
        parts.append(f"unfinished creation or deletion: pool {types}")
        advice = f"if no command is at work on it, run: leasectl pool delete {found.ending[0]}"
    if found.damaged:
        parts.append(f"damaged by an edit: {listed(found.damaged)}")
        where = f"-n {store.collection.namespace}"
        advice = f"see it with: kubectl get lease {where} -o yaml NAME; repair or delete it"
    if found.edited:
        names = [_name(each) for each in found.edited]
        parts.append(f"labels or fields were edited: {listed(names)}")
    if found.orphaned:
        parts.append(
            f"pool was deleted by hand, its resources are still there: {listed(found.orphaned)}"
        )
    if not (found.edited or found.orphaned):
        return warn("; ".join(parts), advice)
    run = "run: leasectl doctor --fix"
    return warn(
        "; ".join(parts),
        f"{advice}; and {run}" if advice else run,
        mend=lambda: _mend(store, found),
    )


def _mend(store: KubernetesObjects, found: _Found) -> str:
    written = [
        _name(body)
        for body in found.edited
        if store.replace_raw(body, lambda found: as_it_counts(found.raw) is None).is_done
    ]
    parts = [f"restored: {listed(written) or 'nothing'}"] if found.edited else []
    if found.orphaned:
        for each in found.orphaned:
            store.write(Change(None, new_pool(object_of_pool(each), each, NO_SETTINGS)))
        types = listed(found.orphaned)
        parts.append(f"created again, without pace and aging: pool {types}")
    return "; ".join(parts)


def _found(store: KubernetesObjects) -> _Found:
    edited: list[Body] = []
    items = []
    for raw in store.list_raw()[0]:
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
    """Return whether another program has written a ticket, as far as that shows.

    Until its first renewal, which writes its queue position, the server tells how many have written
    it.
    """
    place = annotations_of(ticket.raw).get(PLACE)
    if not ticket.claim_key:
        return True
    if place is None:
        return len(ticket.raw["metadata"].get("managedFields") or ()) > 1
    return bool(str(ticket.place) != place)


def _name(raw: Json) -> str:
    return printable(identity_of(raw).name, longest=253)


DEADLINE_SECONDS = 3.0


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> Checks:
    """The checks of a cluster that need no state directory; when one fails, so do the rest."""
    try:
        choice = choose(parse_kubernetes_url(url), environment)
    except LeaseError as error:
        found = failure(error)
        return {"cluster": lambda: found}
    opened = _open(choice, "")
    return {
        "cluster": lambda: cluster(choice),
        **({"kubeconfig": lambda: kubeconfig(choice)} if choice.kubeconfigs else {}),
        "kubectl": lambda: kubectl(choice, environment),
        "cluster user": lambda: ok(who_we_are(opened.objects.api)),
        "cluster rights": lambda: rights(opened.objects.api, choice.namespace),
        "cluster objects": lambda: objects(opened.objects),
    }


def checks_of_claims(service: Service, settings: Settings) -> Checks:
    """The checks of what a state directory holds in the cluster that its settings name."""
    if settings.cluster is None:
        return {}
    opened = _open(parse_choice(settings.cluster), service.state.state_id())
    return {
        "cluster claims": lambda: agreement(service, "the cluster", opened),
        "cluster names": lambda: memberships_of(opened),
        "cluster circular waits": lambda: circular(service),
    }


def _open(choice: ClusterChoice, state_id: str) -> Opened:
    clock = Clock()
    api = Api(choice, clock=clock, deadline_seconds=DEADLINE_SECONDS)
    return open_kubernetes(
        api,
        choice.namespace,
        state_id=state_id,
        clock=clock,
    )


def cluster(choice: ClusterChoice) -> Finding:
    """Which cluster and namespace, where is that written, and why there?"""
    what = f'{choice.server}, namespace "{choice.namespace}", from {choice.found}'
    what += f", because {choice.why}"
    if choice.warning:
        return warn(
            f"{what}; {choice.warning}",
            "use an https:// address with a certificate that can be verified",
        )
    return ok(what)


def kubeconfig(choice: ClusterChoice) -> Finding:
    """Can others say which cluster it is, and which program says who we are?"""
    theirs = [path for path in choice.kubeconfigs if _others_can_write(path)]
    if not theirs:
        return ok("no other user can write the kubeconfig")
    return warn(
        f"other users can write {listed(theirs)}, and so make you run any program",
        f"run: chmod go-w {' '.join(map(shlex.quote, theirs))}; you or root must own it",
    )


def _others_can_write(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:  # of several one may be missing
        return False
    return bool(found.st_mode & 0o022) or found.st_uid not in (0, os.geteuid())


def kubectl(choice: ClusterChoice, environment: Mapping[str, str]) -> Finding:
    """Does KUBECONFIG name another cluster?"""
    theirs = what_kubectl_would_take(environment)
    if theirs is None:
        return ok("KUBECONFIG names no cluster")
    if theirs.server == choice.server:
        return ok("KUBECONFIG names the same cluster")
    what = f"kubectl would use another cluster, {theirs.server}, from {theirs.found}"
    if theirs.chosen_by != "KUBECONFIG":
        return ok(what)
    return warn(
        f"{what} (KUBECONFIG)",
        "this is right if KUBECONFIG names a cluster under test; to use that "
        "cluster for leases, name it in LEASECTL_KUBECONFIG",
    )


def rights(api: Api, namespace: str) -> Finding:
    """May we do what leases take?"""
    missing = what_we_may_not(api, needed_in(namespace))
    if not missing:
        check_namespace(api, namespace)
        return ok(f'all rights that leases need in namespace "{namespace}"')
    what = f"no right to {', '.join(f'{each.verb} {each.resource}' for each in missing)}"
    advice = how_to_permit(who_we_are(api), missing[0])
    if all(map(is_of_events, missing)):
        return warn(f"{what}: leases work, but no events are written", advice)
    return fail(what, advice, exit_code=NotAllowed.exit_code)
