"""The manifest that an administrator applies to a cluster.

It gives a service account the least rights that pools in a namespace need and, on request, those
that the maintenance of nodes needs. It can hold pools and the controller of maintenance. No cluster
is contacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leasectl.backends.kinds import kind_of
from leasectl.engines.cluster.changes import new_pool, new_resource
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.kubernetes.api.address import is_namespace, parse_kubernetes_url
from leasectl.engines.kubernetes.api.rights import (
    is_account,
    needed_for_maintenance,
    needed_in,
    rules_of,
)
from leasectl.engines.kubernetes.encoding import body_of, new_expectations
from leasectl.engines.kubernetes.names import (
    BY,
    POOL_PREFIX,
    SETTINGS,
    STATE,
    TICKET_PREFIX,
    VALUE_PREFIX,
    object_of_pool,
    object_of_resource,
)
from leasectl.engines.rules.membership import Member
from leasectl.errors import InvalidRequest
from leasectl.text.naming import MOST_AT_ONCE, check_own_type, check_pattern, next_names
from leasectl.text.wording import printable

Manifest = list[dict[str, Any]]

# A reference of a container image, as far as it matters here: one word, not an option.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", re.ASCII)
_REPLICAS = 2

_RBAC = "rbac.authorization.k8s.io"
_ROLE = "leasectl"
_CLUSTER_ROLE = "leasectl-maintenance"
_CONTROLLER = "leasectl-maintenance"


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


def parse_counts(texts: Sequence[str]) -> dict[str, int]:
    """Read pools, ``POOL=COUNT`` each; raise InvalidRequest if one is invalid."""
    counts: dict[str, int] = {}
    for text in texts:
        pool_type, equals, number = text.partition("=")
        is_number = equals and number.isascii() and number.isdecimal() and len(number) < 10
        if not is_number or not 1 <= int(number) <= MOST_AT_ONCE:
            raise InvalidRequest(
                f'--pool "{printable(text)}": write it like azure--install=2, of 1 to '
                f"{MOST_AT_ONCE} resources"
            )
        if check_own_type(pool_type) in counts:
            raise InvalidRequest(f'--pool: "{pool_type}" is given twice')
        counts[pool_type] = int(number)
    return counts


def parse_patterns(texts: Sequence[str]) -> dict[str, str]:
    """Read expectations, ``POOL=PATTERN`` each; return the pool of each pattern."""
    patterns: dict[str, str] = {}
    for text in texts:
        pool_type, equals, pattern = text.partition("=")
        if not equals:
            raise InvalidRequest(f'invalid --expect "{printable(text)}"; use POOL=PATTERN')
        if check_pattern(pattern) in patterns:
            raise InvalidRequest(f'--expect: "{pattern}" is given twice')
        patterns[pattern] = check_own_type(pool_type)
    return patterns


def manifest_of(
    namespace: str,
    account: str,
    *,
    admin: str | None,
    maintenance: bool,
    image: str | None,
    counts: Mapping[str, int],
    patterns: Mapping[str, str],
    makes_namespace: bool,
) -> Manifest:
    """Return all objects that leasectl needs in a namespace.

    Args:
        namespace: Where the pools are.
        account: The account that leases there, as `parse_account` reads it.
        admin: The account of admins; then the other one can't change pools. None for no such
            distinction.
        maintenance: The account has the rights of maintenance, too.
        image: Of the controller; None for no controller.
        counts: The pools, and how many resources each has.
        patterns: The pool of each pattern of names that are expected.
        makes_namespace: The namespace is made, too.

    Raises:
        InvalidRequest: One of these is invalid.
    """
    whose = parse_account(account, check_namespace(namespace))
    made = rights(namespace, whose, for_maintenance=maintenance, makes_namespace=makes_namespace)
    if admin is not None:
        admins = parse_account(admin, namespace)
        if admins == whose:
            raise InvalidRequest(
                "--admin-account and --service-account name the same account; use two"
            )
        made += rights(namespace, admins, for_maintenance=False, makes_namespace=False)
        made += for_jobs_only(namespace, whose)
    if image is not None:
        if not maintenance:
            raise InvalidRequest("--image needs --maintenance; the controller needs its rights")
        made += controller(namespace, whose, check_image(image))
    return made + pools(namespace, counts) + expectations(namespace, patterns)


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


def for_jobs_only(namespace: str, account: Account) -> Manifest:
    """Return the admission policy by which an account can use pools and not change them.

    A Role can't tell the object of a pool from that of a waiting request. Names and annotations
    can. It needs Kubernetes 1.30, and rights on the whole cluster.

    Args:
        namespace: Of the pools.
        account: The one that jobs have.
    """
    name = f"leasectl-jobs.{namespace}.{account.namespace}.{account.name}"
    user = f"system:serviceaccount:{account.namespace}:{account.name}"
    of_requests = " || ".join(
        f"request.name.startsWith('{each}')" for each in (TICKET_PREFIX, VALUE_PREFIX)
    )
    unchanged = " && ".join(
        f"object.metadata.?annotations[?'{each}'].orValue('') == "
        f"oldObject.metadata.?annotations[?'{each}'].orValue('')"
        for each in (SETTINGS, STATE)
    )
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["leases"],
    }
    validations = [
        _validation(
            f"request.operation == 'UPDATE' || {of_requests}",
            "this account can use pools, but not create or delete them or their resources",
        ),
        _validation(
            "request.operation != 'UPDATE' || "
            f"!request.name.startsWith('{POOL_PREFIX}') || ({unchanged})",
            "this account can use pools, but not change or delete them",
        ),
    ]
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return [
        {
            **api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [
                    {"name": "jobs", "expression": f"request.userInfo.username == '{user}'"}
                ],
                "validations": validations,
            },
        },
        {
            **api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": here,
            },
        },
    ]


def _validation(expression: str, message: str) -> dict[str, str]:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


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
        made.append(body_of(new_pool(object_of_pool(pool_type), pool_type, NO_SETTINGS)))
        for name in next_names(pool_type, count, ()):
            member = Member(name, pool_type)
            made.append(body_of(new_resource(object_of_resource(name), member)))
    return [_in_namespace(body, namespace) for body in made]


def expectations(namespace: str, patterns: Mapping[str, str]) -> Manifest:
    """Return the object that expects names in pools.

    Args:
        namespace: The namespace of the pools.
        patterns: The pool of each name or pattern.
    """
    return [_in_namespace(new_expectations(patterns), namespace)] if patterns else []


def _in_namespace(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    # Without a random word: applying the same manifest again changes nothing.
    del body["metadata"]["annotations"][BY]
    body["metadata"]["namespace"] = namespace
    return body


def check_image(text: str) -> str:
    """Return a reference of a container image, or raise InvalidRequest if it isn't one."""
    if not _IMAGE.fullmatch(text):
        raise InvalidRequest(
            f'invalid --image "{printable(text)}"; use a reference like registry/leasectl:1.0.0'
        )
    return text


def controller(namespace: str, account: Account, image: str) -> Manifest:
    """Return the Deployment that runs the controller of maintenance.

    Its replicas are on different nodes if that is possible, as the controller drains its own node
    like any other one: the other replica then leads.

    Args:
        namespace: The namespace of the nodes' Leases.
        account: The service account, in whose namespace the Deployment is.
        image: The container image; it must contain leasectl.
    """
    labels = {"app.kubernetes.io/name": _CONTROLLER}
    spread = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    container = {
        "name": "reconcile",
        "image": image,
        "command": ["leasectl", "maintenance", "reconcile"],
        "args": ["--backend", "kubernetes://", "--lease-namespace", namespace],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "serviceAccountName": account.name,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": spread}
                ]
            }
        },
        "containers": [container],
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": _CONTROLLER, "namespace": account.namespace, "labels": labels},
            "spec": {
                "replicas": _REPLICAS,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
    ]


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
