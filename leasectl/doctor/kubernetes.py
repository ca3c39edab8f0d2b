"""What can be found out about a cluster of Kubernetes: which, as whom, and is all as we left it?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from leasectl.doctor.findings import FAIL, OK, WARN, Check, Finding, failure
from leasectl.doctor.kubernetes_objects import objects
from leasectl.doctor.memberships import agreement_of
from leasectl.doctor.server_claims import agreement
from leasectl.engines.kubernetes.api.address import parse_kubernetes_url
from leasectl.engines.kubernetes.api.choice import ClusterChoice, choose, parse_choice
from leasectl.engines.kubernetes.api.opening import open_api
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.rights import how_to_permit, is_of_events, needed_in
from leasectl.engines.kubernetes.api.standing import (
    check_namespace,
    what_kubectl_would_take,
    what_we_may_not,
    who_we_are,
)
from leasectl.engines.kubernetes.members.known import all_known
from leasectl.engines.kubernetes.objects.objects import (
    ResourceObject,
)
from leasectl.engines.kubernetes.objects.reading import parse_object
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.system.clock import Clock
from leasectl.text.wording import listed

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
        *([Check("kubeconfig", lambda: kubeconfig(choice))] if choice.kubeconfigs else []),
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
        return Finding(
            WARN,
            f"{what}; {choice.warning}",
            "give it an https:// address whose certificate is verified",
        )
    return Finding(OK, what)


def kubeconfig(choice: ClusterChoice) -> Finding:
    """Can others say which cluster it is, and which program says who we are?"""
    theirs = [path for path in choice.kubeconfigs if _others_can_write(path)]
    if not theirs:
        return Finding(OK, "nobody else can write it")
    return Finding(
        WARN,
        f"others can write {listed(theirs)}, and so have any program run as you",
        f"run: chmod go-w {' '.join(map(shlex.quote, theirs))}; it has to be yours, too, or root's",
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
        check_namespace(api, namespace)
        return Finding(OK, f'all that leases take in namespace "{namespace}"')
    what = f"we may not {', '.join(f'{each.verb} {each.resource}' for each in missing)}"
    advice = how_to_permit(who_we_are(api), missing[0])
    if all(map(is_of_events, missing)):
        return Finding(WARN, f"{what}: leases are had, and nothing is told of them", advice)
    return Finding(FAIL, what, advice, exit_code=NotAllowed.exit_code)


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
    known = all_known(opened.store)
    members = [known.member(name) for name in known.resources]
    there = [each for each in members if each.pool is not None]
    return agreement_of(there, known.pools, members, number=len(there))
