"""Parse ``kubernetes://NAMESPACE?context=NAME&kubeconfig=PATH``; paths of collections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.text.wording import printable, printable_url

_SCHEME = "kubernetes://"
# Of a label of DNS: RFC 1123, as the API server wants it of a namespace.
_OF_LABELS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_LABEL = 63
_ESCAPE = rb"%([0-9A-Fa-f]{2})?"
_LONGEST_VALUE = 4096
Json = Mapping[str, Any]
# What belongs to a pod, and is made to have it go.
EVICTION = "eviction"
# As roles name them; see https://kubernetes.io/docs/reference/access-authn-authz/authorization/.
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]


class KubernetesAddress(NamedTuple):
    """What a URL says; what it doesn't is found out elsewhere.

    Args:
        namespace: Where the objects are.
        context: The entry of a kubeconfig that says which cluster, and as whom.
        kubeconfig: The path of that file.
    """

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


def parse_kubernetes_url(url: str) -> KubernetesAddress:
    """Read the URL of a namespace.

    Raises:
        InvalidRequest: It is none.
    """
    if "@" in url.partition("?")[0]:
        raise InvalidRequest(  # without the address, which may hold a password
            "a Kubernetes address can't hold a user; name a kubeconfig with the user "
            "in LEASECTL_KUBECONFIG"
        )
    if not url.startswith(_SCHEME):
        raise _wrong(url, "is not a URL of Kubernetes")
    namespace, question, query = url[len(_SCHEME) :].partition("?")
    namespace = namespace.removesuffix("/")
    if namespace and not is_namespace(namespace):
        raise _wrong(url, f'has "{printable(namespace)}" where a namespace should be')
    given = _parameters(url, query) if question else {}
    return KubernetesAddress(namespace or None, given.get("context"), given.get("kubeconfig"))


def is_namespace(text: str) -> bool:
    """Whether a namespace can have that name."""
    return (
        0 < len(text) <= _LONGEST_LABEL and _OF_LABELS.issuperset(text) and text.strip("-") == text
    )


def found_in(context: str, kubeconfigs: tuple[str, ...]) -> str:
    """Return where a context is written, for messages."""
    files = printable(":".join(kubeconfigs), longest=500)
    return f'context "{printable(context)}" in {files}'


def _parameters(url: str, query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for each in query.split("&"):
        name, equals, value = each.partition("=")
        if name not in ("context", "kubeconfig"):
            raise _wrong(
                url, f'has the parameter "{printable(name)}", which isn\'t context or kubeconfig'
            )
        if name in given:
            raise _wrong(url, f"has {name} twice")
        given[name] = _unescaped(url, name, value)
        if not equals or not given[name]:
            raise _wrong(url, f"has {name} without a value")
    return given


def _unescaped(url: str, name: str, value: str) -> str:
    """What a value stands for: "%2F" and the like are what they are in all URLs; "+" is a "+"."""
    raw = value.encode(errors="surrogateescape")
    if any(found[1] is None for found in re.finditer(_ESCAPE, raw)):
        raise _wrong(url, f'has a "%" in {name} that isn\'t written as %25')
    unescaped = re.sub(_ESCAPE, lambda found: bytes.fromhex(found[1].decode()), raw)
    text = unescaped.decode(errors="replace")
    if not text.isprintable() or "\ufffd" in text or len(text) > _LONGEST_VALUE:
        raise _wrong(url, f"has an invalid {name} (unprintable, not UTF-8 or too long)")
    return text


def _wrong(url: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f'"{printable_url(url, longest=200)}" {what}; '
        "write it like kubernetes://namespace?context=name&kubeconfig=/path"
    )


class Collection(NamedTuple):
    """The objects of one kind, in one namespace or of all the cluster.

    Args:
        api: Its group and version, like ``coordination.k8s.io/v1``; ``v1`` for the oldest.
        plural: The kind, as paths have it, like ``leases``.
        namespace: Where they are; empty for what is in no namespace, or in any.
    """

    api: str
    plural: str
    namespace: str = ""

    @property
    def group(self) -> str:
        """Its group, empty for the oldest."""
        group, slash, _ = self.api.partition("/")
        return group if slash else ""

    def path(self, name: str = "", subresource: str = "") -> str:
        """The path of all of them, of one, or of what belongs to one."""
        root = "/apis" if "/" in self.api else "/api"
        where = f"/namespaces/{self.namespace}" if self.namespace else ""
        parts = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/{self.api}{where}/{self.plural}{parts}"


class Deed(NamedTuple):
    """The action of a request, for error messages.

    Args:
        verb: What, as roles name it.
        collection: Of what.
        name: Of which of them; empty for all, or a new one.
        subresource: Of what belongs to that one; empty for itself.
    """

    verb: Verb
    collection: Collection
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """Where it is done."""
        return self.collection.path(self.name, self.subresource)

    @property
    def resource(self) -> str:
        """What it is done to, as roles name it: ``leases.coordination.k8s.io``."""
        plural = self.collection.plural + (f"/{self.subresource}" if self.subresource else "")
        return f"{plural}.{self.collection.group}" if self.collection.group else plural

    def __str__(self) -> str:
        """It in words: ``update leases.coordination.k8s.io "name" in namespace "ns"``."""
        name = f' "{printable(self.name, longest=253)}"' if self.name else ""
        return f"{self.verb} {self.resource}{name}{self.where}"

    @property
    def where(self) -> str:
        """The namespace in words, with a blank before."""
        namespace = self.collection.namespace
        return f' in namespace "{printable(namespace)}"' if namespace else ""


def leases(namespace: str) -> Collection:
    """The Leases of a namespace."""
    return Collection("coordination.k8s.io/v1", "leases", namespace)


def events(namespace: str) -> Collection:
    """What is told of the objects of a namespace."""
    return Collection("events.k8s.io/v1", "events", namespace)


NAMESPACES = Collection("v1", "namespaces")
