"""Paths of collections, and words for messages about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from leasectl.text.wording import printable

Json = Mapping[str, Any]

# What belongs to a pod, and is made to have it go.
EVICTION = "eviction"

# As roles name them; see https://kubernetes.io/docs/reference/access-authn-authz/authorization/.
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]


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
    """What a request is to do, for whoever reads that it failed.

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
