"""A cluster in memory, with versions, budgets and failures, as maintenance sees it."""

from __future__ import annotations

import copy
from typing import Any, Callable

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.api_cluster import Evicted
from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.objects import (
    CORDON_MARK,
    REQUEST,
    REQUEST_WORD,
    STATUS,
    Json,
    Pod,
    lease_body,
    node_patch,
)

Object = dict[str, Any]


class FakeCluster:
    """Nodes, leases and pods, and what was asked of them.

    Attributes:
        requests: What was asked, one word or two each.
        evicted: The pods that were, in order.
        held: Pods that a budget holds back, by their name.
        answers: What is said, or raised, of an eviction instead, by the name of the pod.
        graces: How long those that were evicted might take to end.
        fails_at: The request, counted from now on, that isn't carried out.
        loses_at: The request whose answer doesn't arrive.
        identity: What is noted in cordon marks.
        each_request: Called before each request.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.leases: dict[str, Object] = {}
        self.running: dict[str, list[Pod]] = {}
        self.requests: list[str] = []
        self.evicted: list[str] = []
        self.held: set[str] = set()
        self.answers: dict[str, Evicted | Exception] = {}
        self.graces: list[int | None] = []
        self.fails_at = self.loses_at = 0
        self.is_away = False
        self.identity = "machine-remediation"
        self.each_request: Callable[[], None] = lambda: None
        self._changes: list[FakeChanges] = []
        self._version = 0

    def watch(self) -> FakeChanges:
        """What changes from now on, all that is there counted in."""
        changes = FakeChanges()
        changes.names |= self.nodes.keys()
        self._changes.append(changes)
        return changes

    # --- what people do

    def add_node(self, name: str, *, cordoned: bool = False, uid: str = "") -> None:
        uid = uid or f"uid-{name}"
        self.nodes[name] = {"metadata": {"name": name, "uid": uid, "annotations": {}}}
        self.nodes[name]["spec"] = {"unschedulable": True} if cordoned else {}
        self.running[name] = []
        self._touch(self.nodes[name], name)

    def ask_for(self, name: str, text: str | None, word: str = "") -> None:
        annotations = self.nodes[name]["metadata"]["annotations"]
        for key, value in ((REQUEST, text), (REQUEST_WORD, word or None)):
            annotations.pop(key, None)
            if value is not None:
                annotations[key] = value
        self._touch(self.nodes[name], name)

    def put_lease(self, name: str, **spec: object) -> None:
        self.leases[name] = {"metadata": {"name": name, "uid": f"lease-{name}"}, "spec": spec}
        self._touch(self.leases[name], name)

    def status(self, name: str) -> str:
        return str(self.nodes[name]["metadata"]["annotations"].get(STATUS, ""))

    def is_cordoned(self, name: str) -> bool:
        return self.nodes[name]["spec"].get("unschedulable") is True

    def is_marked(self, name: str) -> bool:
        return CORDON_MARK in self.nodes[name]["metadata"]["annotations"]

    def requested(self, name: str) -> bool:
        return REQUEST in self.nodes[name]["metadata"]["annotations"]

    # --- what maintenance does

    def node(self, name: str) -> Json | None:
        self._ask("node")
        return copy.deepcopy(self.nodes.get(name))

    def write_node(self, read: Json, write: NodeWrite) -> bool:
        loses = self._ask("write node")
        name = read["metadata"]["name"]
        node = self.nodes[name]
        if _version(node) != _version(read):
            return False
        patch = node_patch(read, write, self.identity)
        _merge(node, patch)
        self._touch(node, name)
        self._lose(loses)
        return True

    def lease(self, name: str) -> Json | None:
        self._ask("lease")
        return copy.deepcopy(self.leases.get(name))

    def write_lease(
        self, name: str, read: Json | None, lease: Lease, *, node: str = ""
    ) -> Json | None:
        loses = self._ask("write lease")
        there = self.leases.get(name)
        if (there is None) != (read is None):
            return None
        if there is not None and _version(there) != _version(read or {}):
            return None
        written: Object = copy.deepcopy(dict(lease_body(read, name, lease, node=node)))
        written["metadata"].setdefault("uid", f"lease-{name}")
        is_other = there is None or there["spec"].keys() != written["spec"].keys()
        self.leases[name] = written
        self._touch(written, node or (name if is_other else ""))
        self._lose(loses)
        return copy.deepcopy(written)

    def pods(self, node: str) -> list[Pod]:
        self._ask("pods")
        return list(self.running[node])

    def evict(self, pod: Pod, *, grace_seconds: int | None) -> Evicted:
        loses = self._ask("evict")
        answer = self.answers.get(pod.name)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if pod.name in self.held:
            return Evicted("held", "a disruption budget forbids it now")
        self.evicted.append(str(pod))
        self.graces.append(grace_seconds)
        for pods in self.running.values():
            if pod in pods:
                pods.remove(pod)
        self._lose(loses)
        return Evicted("going")

    # --- how it goes

    def _ask(self, what: str) -> bool:
        self.each_request()
        self.requests.append(what)
        if self.is_away:
            raise BackendUnreachable("the API is away")
        self.fails_at -= 1
        self.loses_at -= 1
        if self.fails_at == 0:
            raise BackendUnreachable("not carried out")
        return self.loses_at == 0

    def _lose(self, loses: bool) -> None:
        if loses:
            raise BackendUnreachable("carried out, and not answered")

    def _touch(self, said: Object, name: str) -> None:
        self._version += 1
        said["metadata"]["resourceVersion"] = str(self._version)
        for changes in self._changes:
            changes.names.add(name)


class FakeChanges:
    """What has changed, as it is said by whoever changes it."""

    def __init__(self) -> None:
        self.fd = -1  # nobody sleeps on it
        self.names: set[str] = set()

    def take(self) -> set[str]:
        names, self.names = self.names - {""}, set()
        return names


def _version(said: Json) -> object:
    return said.get("metadata", {}).get("resourceVersion")


def _merge(target: Object, patch: Json) -> None:
    """As RFC 7396 has it."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value
