"""The manifest that an administrator applies to a cluster.

A service account gets the least that pools in a namespace take, and if that is wanted what the
maintenance of nodes takes besides; pools are the objects that making them would make. Nothing is
asked of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leasectl.backends.kinds import kind_of
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.kubernetes.api.address import is_namespace, parse_kubernetes_url
from leasectl.engines.kubernetes.api.rights import (
    is_account,
    needed_for_maintenance,
    needed_in,
    rules_of,
)
from leasectl.engines.kubernetes.objects import bodies, resource_bodies
from leasectl.engines.kubernetes.objects.objects import BY
from leasectl.engines.membership import Member
from leasectl.errors import InvalidRequest
from leasectl.text.naming import next_names
from leasectl.text.wording import printable

Manifest = list[dict[str, Any]]

_RBAC = "rbac.authorization.k8s.io"
_ROLE = "leasectl"
_CLUSTER_ROLE = "leasectl-maintenance"


class Account(NamedTuple):
    """A service account that rights are given to."""

    namespace: str
    name: str

    @property
    def bound_as(self) -> str:
        """What tells its bindings from those of all others."""
        return f"{self.namespace}:{self.name}"


def check_namespace(text: str) -> str:
    """Return the name of a namespace, or raise InvalidRequest when none can have it."""
    if not is_namespace(text):
        raise InvalidRequest(f'invalid namespace "{printable(text)}"')
    return text


def namespace_in(url: str) -> str | None:
    """The namespace that a backend's URL names; None where it names none.

    Raises:
        InvalidRequest: There is no such backend.
    """
    return parse_kubernetes_url(url).namespace if kind_of(url).is_cluster else None


def parse_account(text: str, namespace: str) -> Account:
    """Read a service account, ``NAME`` or ``NAMESPACE:NAME``.

    Args:
        text: It.
        namespace: Where it is unless it says that.

    Raises:
        InvalidRequest: It is none.
    """
    before, colon, name = text.rpartition(":")
    account = Account(before if colon else namespace, name)
    if not is_namespace(account.namespace) or not is_account(name):
        raise InvalidRequest(
            f'invalid service account "{printable(text)}"; write it like builder, or ci:builder '
            "for another namespace"
        )
    return account


def rights(
    namespace: str, account: Account, *, for_maintenance: bool, makes_namespace: bool
) -> Manifest:
    """What lets a service account use the pools in a namespace.

    Args:
        namespace: Of the pools, and of the Leases of nodes.
        account: Whose rights; it is made, where it is in that namespace.
        for_maintenance: Also what the maintenance of nodes takes.
        makes_namespace: It is made, too.
    """
    made: Manifest = []
    if makes_namespace:
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    if account.namespace == namespace:
        meta = {"name": account.name, "namespace": namespace}
        made.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    rules = [_rule(*each) for each in rules_of(needed_in(namespace))]
    made += _role_and_binding("", _ROLE, {"namespace": namespace}, rules, account)
    if for_maintenance:
        rules = [_rule(*each) for each in rules_of(needed_for_maintenance())]
        made += _role_and_binding("Cluster", _CLUSTER_ROLE, {}, rules, account)
    return made


def pools(namespace: str, counts: Mapping[str, int]) -> Manifest:
    """The objects of pools, as making them would make them.

    Args:
        namespace: Where they are to be.
        counts: The number of the resources of each type.

    Raises:
        InvalidRequest: A resource can't be called so.
    """
    made: Manifest = []
    for pool_type, count in counts.items():
        made.append(bodies.new_pool(pool_type, NO_SETTINGS))
        for name in next_names(pool_type, count, ()):
            made.append(resource_bodies.new_resource(Member(name, pool_type)))
    for body in made:
        # Whoever applies a manifest again is to find nothing changed.
        del body["metadata"]["annotations"][BY]
        body["metadata"]["namespace"] = namespace
    return made


def _role_and_binding(
    prefix: str,
    name: str,
    where: Mapping[str, str],
    rules: Sequence[Mapping[str, Any]],
    account: Account,
) -> Manifest:
    kind = f"{prefix}Role"
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    api = {"apiVersion": f"{_RBAC}/v1"}
    return [
        {**api, "kind": kind, "metadata": {"name": name, **where}, "rules": list(rules)},
        {
            **api,
            "kind": f"{kind}Binding",
            # One for each account: whoever applies it for another takes nothing from this one.
            "metadata": {"name": f"{name}:{account.bound_as}", **where},
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            "subjects": [subject],
        },
    ]


def _rule(group: str, resource: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
