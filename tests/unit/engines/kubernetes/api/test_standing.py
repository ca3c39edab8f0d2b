"""Who we are in a cluster and what we may do there; what kubectl would take."""

from __future__ import annotations

from pathlib import Path

from leasectl.engines.kubernetes.api.collection import leases
from leasectl.engines.kubernetes.api.rights import needed_in
from leasectl.engines.kubernetes.api.standing import (
    what_kubectl_would_take,
    what_we_may_not,
    who_we_are,
)
from tests.kit.kubernetes.namespaces import Namespace
from tests.unit.engines.kubernetes.api.scripted import api_of, write_kubeconfig


def test_a_server_says_who_we_are_and_what_we_may(namespace: Namespace, kubeconfig: Path) -> None:
    api = api_of(kubeconfig)
    needed = needed_in(namespace.name)
    assert who_we_are(api) == namespace.account.user
    assert what_we_may_not(api, needed) == ()
    reader = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    other = namespace.new_account("reader", [reader])
    api = api_of(other.kubeconfig(kubeconfig.with_name("other")))
    missing = what_we_may_not(api, needed)
    assert {each.resource for each in missing} == {
        "leases.coordination.k8s.io",
        "events.events.k8s.io",
    }
    assert [each.verb for each in missing if each.collection == leases(namespace.name)] == [
        *("list", "watch", "create", "update", "delete")
    ]


def test_what_kubectl_would_take_is_told(tmp_path: Path) -> None:
    theirs = write_kubeconfig(tmp_path / "theirs", "https://under-test")
    environment = {"KUBECONFIG": str(theirs), "LEASECTL_KUBECONFIG": str(tmp_path / "ours")}
    found = what_kubectl_would_take(environment)
    assert found is not None
    assert found.server == "https://under-test"
    theirs.write_text("")
    assert what_kubectl_would_take(environment) is None
    assert what_kubectl_would_take({}) is None
