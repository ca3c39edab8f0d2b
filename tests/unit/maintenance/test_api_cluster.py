"""Maintenance on a real API server: what it answers, and what that means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasectl.errors import AccessRefused
from leasectl.maintenance.api_cluster import ApiCluster, open_cluster
from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.objects import STATUS, parse_lease, parse_node
from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import (
    NODES,
    end_pods,
    make_budget,
    make_node,
    make_pod,
    set_allowed,
)
from tests.unit.maintenance.conftest import US, annotations_of

pytestmark = pytest.mark.once


class TestNodes:
    def test_a_write_counts_only_if_the_node_is_as_it_was_read(
        self, cluster: ApiCluster, namespace: Namespace, node: str
    ) -> None:
        assert cluster.node("nowhere") is None
        before = cluster.node(node)
        assert before is not None
        assert cluster.ask_for(node, "30m")
        assert not cluster.write_node(before, NodeWrite("new, create", "cordon"))
        assert not parse_node(cluster.node(node) or {}).is_unschedulable
        now = cluster.node(node)
        assert now is not None
        assert cluster.write_node(now, NodeWrite("new, create", "cordon", begins="w"))
        shown = parse_node(cluster.node(node) or {})
        assert shown[1:] == ("new, create", True, US, (US, "w"))
        now = cluster.node(node)
        assert now is not None
        ending = NodeWrite("ended", "uncordon", ends=True, removes_request=True)
        assert cluster.write_node(now, ending)
        assert parse_node(cluster.node(node) or {})[1:] == ("ended", False, "", None)
        assert set(annotations_of(namespace, node)) == {STATUS}

    def test_a_node_that_was_made_anew_is_another(
        self, cluster: ApiCluster, namespace: Namespace, node: str
    ) -> None:
        before = cluster.node(node)
        assert before is not None
        namespace.administrator.ok("DELETE", f"{NODES}/{node}")
        make_node(namespace.administrator, node)
        assert not cluster.write_node(before, NodeWrite("new, create", "cordon"))
        assert not cluster.ask_for("nowhere", "30m")


class TestLeases:
    def test_a_lease_is_written_as_it_was_read_and_never_brought_back(
        self, cluster: ApiCluster, namespace: Namespace, node: str
    ) -> None:
        uid = parse_node(cluster.node(node) or {}).uid
        first = Lease(US, 90, 1_700_000_000.25, 1_700_000_000.5, 0, uid)
        made = cluster.write_lease(node, None, first, node=node)
        assert made is not None
        assert parse_lease(made) == first
        assert parse_lease(cluster.lease(node) or {}) == first
        # It is there, so it isn't made.
        assert cluster.write_lease(node, None, first, node=node) is None
        # The API takes no duration of 0.
        given_back = cluster.write_lease(
            node, made, first._replace(duration_seconds=0, renewed_at=1_700_000_001.0), node=node
        )
        assert given_back is not None
        assert "leaseDurationSeconds" not in given_back["spec"]
        assert cluster.write_lease(node, made, first, node=node) is None
        namespace.administrator.ok("DELETE", f"{namespace.leases}/{node}")
        assert cluster.write_lease(node, given_back, first, node=node) is None
        assert cluster.lease(node) is None

    def test_the_api_takes_no_duration_of_0(self, namespace: Namespace) -> None:
        lease = {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}
        refused = namespace.administrator("POST", namespace.leases, lease)
        assert refused.status_code == 422
        assert "must be greater than 0" in refused.text


class TestEvictions:
    def test_each_answer_is_understood(
        self, cluster: ApiCluster, namespace: Namespace, node: str
    ) -> None:
        for name in ("free", "tight", "fresh", "twice", "replaced"):
            make_pod(namespace, name, node, labels={"app": name})
        make_budget(namespace, "tight", {"app": "tight"}, allowed=0)
        make_budget(namespace, "fresh", {"app": "fresh"}, allowed=None)
        for name in ("one", "two"):
            make_budget(namespace, name, {"app": "twice"}, allowed=1)
        pods = {each.name: each for each in cluster.pods(node)}
        assert set(pods) == {"free", "tight", "fresh", "twice", "replaced"}

        def evicted(name: str) -> tuple[str, str, float]:
            return tuple(cluster.evict(pods[name], grace_seconds=None))  # type: ignore[return-value]

        assert evicted("free") == ("going", "", 0.0)
        assert evicted("free") == ("going", "", 0.0)  # it is ending already
        assert evicted("tight") == ("held", "a disruption budget forbids it now", 0.0)
        new = "a new disruption budget forbids it now"
        assert evicted("fresh") == ("held", new, 10.0)
        assert evicted("twice")[0] == "failed"
        assert "more than one disruption budget" in evicted("twice")[1]
        namespace.administrator.ok("DELETE", f"{namespace.pods}/replaced?gracePeriodSeconds=0")
        make_pod(namespace, "replaced", node)
        outcome, why, _ = evicted("replaced")
        assert outcome == "held"  # the next list tells what is there now
        assert why.startswith("the pod has just changed: ")
        namespace.administrator.ok("DELETE", f"{namespace.pods}/replaced?gracePeriodSeconds=0")
        assert evicted("replaced") == ("gone", "", 0.0)
        assert end_pods(namespace) == ["free"]
        set_allowed(namespace, "tight", 1)
        assert evicted("tight")[0] == "going"

    def test_what_may_not_be_evicted_is_said_with_the_pod(
        self, cluster: ApiCluster, namespace: Namespace, node: str
    ) -> None:
        make_pod(namespace, "web", node)
        (pod,) = cluster.pods(node)
        namespace.account.permit_everywhere(MAINTENANCE_RULES[:2])
        evicted = cluster.evict(pod, grace_seconds=0)
        assert evicted.outcome == "failed"
        assert "not allowed to create pods/eviction" in evicted.reason

    def test_whoever_may_nothing_is_told_what(self, namespace: Namespace, kubeconfig: Path) -> None:
        environment = {"LEASECTL_KUBECONFIG": str(kubeconfig)}
        cluster = open_cluster("kubernetes://", environment, namespace="nowhere", identity=US)
        with pytest.raises(
            AccessRefused,
            match=r"not allowed to get nodes; .*manifest --service-account \S+ --maintenance",
        ):
            cluster.node("x")
        with pytest.raises(AccessRefused, match="the namespace is missing"):
            cluster.lease("x")


def test_who_verifies_nothing_is_warned(kubeconfig: Path, namespace: Namespace) -> None:
    config = json.loads(kubeconfig.read_text())
    there = config["clusters"][0]["cluster"]
    there.update({"insecure-skip-tls-verify": True, "certificate-authority": ""})
    kubeconfig.write_text(json.dumps(config))
    said: list[str] = []
    environment = {"LEASECTL_KUBECONFIG": str(kubeconfig)}
    open_cluster(
        "kubernetes://", environment, namespace=namespace.name, identity=US, warn=said.append
    )
    (line,) = said
    assert "insecure-skip-tls-verify: anyone on" in line
