"""The controller needs each right that `leasectl kubernetes manifest --maintenance` prints."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leasectl.errors import LeaseError
from leasectl.maintenance.api_cluster import open_cluster
from leasectl.maintenance.controller import Controller, Settings
from leasectl.maintenance.facts import Us
from leasectl.maintenance.leadership import Leadership
from leasectl.maintenance.watching import WatchedChanges
from leasectl.system.clock import Clock
from tests.kit.kubernetes.accounts import LEAST_RULES, MAINTENANCE_RULES, Rules
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, make_node, make_pod
from tests.kit.waits import PATIENCE_SECONDS

pytestmark = pytest.mark.once

US = "machine-remediation"
# Those of pools beside them: `delete`, and all of events.
OF_LEASES = ("get", "list", "watch", "create", "update")
NEEDED = [("leases", verb) for verb in OF_LEASES] + [
    (rule["resources"][0], verb) for rule in MAINTENANCE_RULES for verb in rule["verbs"]
]
LEASES_ONLY: Rules = [{**LEAST_RULES[0], "verbs": OF_LEASES}]


def without(rules: Rules, resource: str, verb: str) -> Rules:
    """Some rules, but for one verb."""
    less = [
        {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
        if rule["resources"] == [resource]
        else rule
        for rule in rules
    ]
    return [rule for rule in less if rule["verbs"]]  # one without any is refused


def told(namespace: Namespace, kubeconfig: Path, until: str) -> list[str]:
    """Have a controller go on until it says something; returns all that it said."""
    environment = {"LEASECTL_KUBECONFIG": str(kubeconfig)}
    cluster = open_cluster("kubernetes://", environment, namespace=namespace.name, identity=US)
    settings, clock, said = Settings(Us(US)), Clock(), list[str]()
    changes = WatchedChanges(cluster, settings, said.append)
    leadership = Leadership(cluster, "here", clock)
    controller = Controller(
        cluster, changes, settings, leadership, clock=clock, say=said.append, warn=said.append
    )
    going = controller.run()
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        changes.begin()
        while not any(until in each for each in said) and time.monotonic() < deadline:
            next(going)
            time.sleep(0.01)
    except LeaseError as error:
        said.append(str(error))
    finally:
        changes.close()
    return said


def test_it_needs_each_of_them_and_says_which_it_lacks(
    namespace: Namespace, kubeconfig: Path
) -> None:
    administrator = namespace.administrator
    node = f"rights-{namespace.name}"
    make_node(administrator, node)
    asked = {"metadata": {"annotations": {"lifecycle.metal3.io/maintenance": "1h"}}}
    path = f"{NODES}/{node}"
    administrator.ok("PATCH", path, asked, content_type="application/merge-patch+json")
    for number, (resource, verb) in enumerate(NEEDED):
        make_pod(namespace, f"web-{number}", node)
        namespace.account.permit(without(LEASES_ONLY, resource, verb))
        namespace.account.permit_everywhere(without(MAINTENANCE_RULES, resource, verb))
        refusal = f"is not allowed to {verb} {resource}"
        said = told(namespace, kubeconfig, refusal)
        assert any(refusal in each for each in said), (resource, verb, said)
        for name in namespace.lease_names():
            administrator("DELETE", f"{namespace.leases}/{name}")
    make_pod(namespace, "last", node)
    namespace.account.permit(LEASES_ONLY)
    namespace.account.permit_everywhere(MAINTENANCE_RULES)
    said = told(namespace, kubeconfig, "/last is being evicted")
    assert f"{node}: {namespace.name}/last is being evicted" in said, said
    assert not any("not allowed to" in each for each in said), said
    administrator.ok("DELETE", path)
