"""Evictions on Nodes that only tests look after are granted and refused as everywhere."""

from __future__ import annotations

from collections import Counter

import httpx

from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import (
    NODES,
    end_pods,
    make_budget,
    make_node,
    make_pod,
    set_allowed,
)
from tests.kit.kubernetes.rights import MAINTENANCE_RULES
from tests.kit.support import eventually


def test_a_budget_allows_as_many_evictions_as_it_says(namespace: Namespace) -> None:
    administrator = namespace.administrator
    node = make_node(administrator, f"node-{namespace.name}")["metadata"]["name"]
    for name in ("a", "b"):
        make_pod(namespace, name, node, labels={"app": "web"})
    make_budget(namespace, "web", {"app": "web"}, allowed=None)
    namespace.account.permit_everywhere(MAINTENANCE_RULES)
    api = namespace.account.api()

    def evict(name: str) -> httpx.Response:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return api("POST", f"{namespace.pods}/{name}/eviction", eviction)

    # One that its controller hasn't seen yet says when to come again, another doesn't.
    assert evict("a").headers["Retry-After"] == "10"
    set_allowed(namespace, "web", 1)
    assert evict("a").status_code == 201
    refused = evict("b")
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, False)
    assert end_pods(namespace) == ["a"]
    on_node = api.items("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
    assert [each["metadata"]["name"] for each in on_node] == ["b"]
    api.ok(
        "PATCH",
        f"{NODES}/{node}",
        {"spec": {"unschedulable": True}},
        content_type="application/merge-patch+json",
    )
    api.close()

    def evictions() -> Counter[int]:
        return Counter(each.code for each in namespace.asked() if "eviction" in each.resource)

    eventually(lambda: evictions() == {429: 2, 201: 1})
