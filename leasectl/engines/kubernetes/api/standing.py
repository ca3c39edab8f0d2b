"""The identity and the rights of this process in the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from leasectl.engines.kubernetes.api.address import Collection, Deed, KubernetesAddress, leases
from leasectl.engines.kubernetes.api.choice import ClusterChoice, choose, kubectls_paths
from leasectl.engines.kubernetes.api.refusals import AlreadyExists
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import CorruptState, LeaseError
from leasectl.text.wording import printable

# The name of a ticket: an admission policy may let jobs create those only.
_PROBE = "leasectl-ticket-doctor"

_WHO = Collection("authentication.k8s.io/v1", "selfsubjectreviews")
_WHAT = Collection("authorization.k8s.io/v1", "selfsubjectaccessreviews")


def who_we_are(api: Api) -> str:
    """The name that a server has for us, printable.

    Raises:
        LeaseError: As `Api` has it; a server before Kubernetes 1.28 doesn't say.
    """
    body = {"apiVersion": _WHO.api, "kind": "SelfSubjectReview"}
    said = api.ask(Deed("create", _WHO), "POST", body)
    status = said.get("status")
    user = status.get("userInfo") if isinstance(status, dict) else None
    name = user.get("username") if isinstance(user, dict) else None
    return printable(str(name or "nobody"), longest=200)


def what_we_may_not(api: Api, deeds: Sequence[Deed]) -> tuple[Deed, ...]:
    """Those of some deeds that a server would refuse us; none is done.

    Raises:
        LeaseError: As `Api` has it.
    """
    return tuple(deed for deed in deeds if not _may(api, deed))


def check_namespace(api: Api, namespace: str) -> None:
    """Check, by a dry run, that Leases can be created in a namespace.

    Raises:
        LeaseError: It is missing or is being deleted, or it refuses all new Leases.
    """
    with contextlib.suppress(AlreadyExists, CorruptState):
        api.check_creation(leases(namespace), _PROBE)


def what_kubectl_would_take(environment: Mapping[str, str]) -> ClusterChoice | None:
    """The cluster that kubectl would talk to here and now; None for none that can be told.

    Args:
        environment: The variables of this process.
    """
    found = kubectls_paths(environment)
    if found is None:
        return None
    try:
        return choose(KubernetesAddress(), {found[0]: environment[found[0]]})
    except LeaseError:
        return None


def _may(api: Api, deed: Deed) -> bool:
    attributes = {
        "namespace": deed.collection.namespace,
        "verb": deed.verb,
        "group": deed.collection.group,
        "resource": deed.collection.plural,
        "subresource": deed.subresource,
        "name": deed.name,
    }
    body = {
        "apiVersion": _WHAT.api,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = api.ask(Deed("create", _WHAT), "POST", body).get("status")
    return isinstance(status, dict) and status.get("allowed") is True
