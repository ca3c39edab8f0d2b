"""The rights that leasectl needs, and how to grant them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leasectl.engines.kubernetes.api.address import (
    EVICTION,
    Collection,
    Deed,
    Verb,
    events,
    is_namespace,
    leases,
)
from leasectl.text.wording import printable

_LEASE_VERBS: tuple[Verb, ...] = ("get", "list", "watch", "create", "update", "delete")
_EVENT_VERBS: tuple[Verb, ...] = ("create", "list", "watch")
_NODE_VERBS: tuple[Verb, ...] = ("get", "list", "watch", "patch")
_EVENTS = "events"
_OF_MAINTENANCE = ("nodes", "pods")
_ACCOUNT = "system:serviceaccount:"


class Rule(NamedTuple):
    """A rule of a role.

    Args:
        group: Of the API; empty for the oldest.
        resource: What it is about, like ``leases`` or ``pods/eviction``.
        verbs: What it allows there.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]


def needed_in(namespace: str) -> tuple[Deed, ...]:
    """What pools in a namespace take: the least that a Role has to allow."""
    there, told = leases(namespace), events(namespace)
    return (
        *(Deed(verb, there) for verb in _LEASE_VERBS),
        *(Deed(verb, told) for verb in _EVENT_VERBS),
    )


def needed_for_maintenance() -> tuple[Deed, ...]:
    """What the maintenance of nodes takes besides: the least that a ClusterRole has to allow."""
    nodes, pods = Collection("v1", "nodes"), Collection("v1", "pods")
    return (
        *(Deed(verb, nodes) for verb in _NODE_VERBS),
        Deed("list", pods),
        Deed("create", pods, subresource=EVICTION),
    )


def is_of_events(deed: Deed) -> bool:
    """Tell whether it is only about what is told of leases: they are had without it."""
    return deed.collection.plural == _EVENTS


def rules_of(deeds: Iterable[Deed]) -> tuple[Rule, ...]:
    """The rules that allow some deeds and nothing else, in their order."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for deed in deeds:
        below = f"/{deed.subresource}" if deed.subresource else ""
        about = (deed.collection.group, f"{deed.collection.plural}{below}")
        found[about] = (*found.get(about, ()), deed.verb)
    return tuple(Rule(group, resource, verbs) for (group, resource), verbs in found.items())


def how_to_permit(user: str, deed: Deed) -> str:
    """What to do so that a user may do something, for people.

    Args:
        user: The name that the server has for it.
        deed: What it may not.
    """
    namespace, name = _account_in(user)
    is_everywhere = deed.collection.plural in _OF_MAINTENANCE or not deed.collection.namespace
    there = "" if is_everywhere else deed.collection.namespace
    words = ["leasectl kubernetes manifest"]
    if there:
        words.append(f"--namespace {printable(there)}")
    if name:
        is_near = namespace == there
        words.append(f"--service-account {name if is_near else f'{namespace}:{name}'}")
    if deed.collection.plural in _OF_MAINTENANCE:
        words.append("--maintenance")
    elif is_everywhere:
        return "a ClusterRole must allow it"
    line = " ".join(words)
    if name:
        return f"ask an administrator to run: {line} | kubectl apply -f -"
    role = "ClusterRole" if is_everywhere else "Role"
    return f"a {role} must allow it, as shown by: {line}"


def _account_in(user: str) -> tuple[str, str]:
    """The namespace and the name of a service account; empty for any other user."""
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    if not user.startswith(_ACCOUNT) or not is_namespace(namespace) or not is_account(name):
        return "", ""
    return namespace, name


def is_account(text: str) -> bool:
    """Whether a service account can have that name: a subdomain, by RFC 1123."""
    return len(text) <= 253 and all(map(is_namespace, text.split(".")))
