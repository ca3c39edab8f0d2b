"""Nodes, Pods on them and the budgets of those, as kubelets and controllers would leave them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.kit.kubernetes.api import Api, Object
from tests.kit.kubernetes.namespaces import Namespace

NODES = "/api/v1/nodes"
_MERGE = "application/merge-patch+json"


def make_node(api: Api, name: str) -> Object:
    """A Node that is ready and takes Pods. Nodes are in no namespace: the name is unique."""
    api.ok("POST", NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    # The server taints it as not ready; a controller would take that away.
    api.ok("PATCH", f"{NODES}/{name}", {"spec": {"taints": None}}, content_type=_MERGE)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return api.ok("PATCH", f"{NODES}/{name}/status", {"status": ready}, content_type=_MERGE)


def make_pod(
    namespace: Namespace,
    name: str,
    node: str,
    *,
    labels: Mapping[str, str] | None = None,
    owner: str | None = "ReplicaSet",
    mirror: bool = False,
    local_storage: bool = False,
) -> Object:
    """A Pod that runs on a Node.

    Args:
        namespace: That it is in.
        name: Its own.
        node: The Node's name.
        labels: By which budgets find it.
        owner: The kind of what would make another one; None if nobody would.
        mirror: Whether it stands for one that the kubelet runs by itself.
        local_storage: Whether it has an `emptyDir`.
    """
    metadata: Object = {"name": name, "labels": dict(labels or {})}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": name}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": name}
    spec: Object = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "none"}],
        "automountServiceAccountToken": False,
    }
    if not mirror:  # which may have none
        spec["serviceAccountName"] = namespace.account.name
    if local_storage:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    namespace.administrator.ok("POST", namespace.pods, {"metadata": metadata, "spec": spec})
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return namespace.administrator.ok(
        "PATCH", f"{namespace.pods}/{name}/status", {"status": running}, content_type=_MERGE
    )


def end_pods(namespace: Namespace) -> list[str]:
    """End all Pods that were told to, as kubelets do; returns their names."""
    api = namespace.administrator
    told = [
        each["metadata"]["name"]
        for each in api.items(namespace.pods)
        if "deletionTimestamp" in each["metadata"]
    ]
    for name in told:
        api.ok("DELETE", f"{namespace.pods}/{name}", query={"gracePeriodSeconds": 0})
    return told


def make_budget(
    namespace: Namespace, name: str, labels: Mapping[str, str], *, allowed: int | None
) -> Object:
    """A PodDisruptionBudget.

    Args:
        namespace: That it is in, with its Pods.
        name: Its own.
        labels: Of the Pods that it covers.
        allowed: How many of them may be evicted; None if its controller hasn't seen it yet.
    """
    spec = {"minAvailable": 1, "selector": {"matchLabels": dict(labels)}}
    budget = {"metadata": {"name": name}, "spec": spec}
    made = namespace.administrator.ok("POST", namespace.budgets, budget)
    return made if allowed is None else set_allowed(namespace, name, allowed)


def set_allowed(namespace: Namespace, name: str, allowed: int) -> Object:
    """Set the evictions that a budget allows from here on; each takes one away."""
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": allowed + 1,
        "desiredHealthy": 1,
        "expectedPods": allowed + 1,
        "disruptedPods": None,
    }
    return namespace.administrator.ok(
        "PATCH", f"{namespace.budgets}/{name}/status", {"status": status}, content_type=_MERGE
    )
