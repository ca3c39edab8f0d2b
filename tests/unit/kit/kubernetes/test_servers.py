"""The API server of the tests is a real one: rights, tokens and watches are as everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kit.kubernetes.assets import find_programs, how_to_have_one
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.servers import Kubernetes, kubernetes_servers


def lease(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "somebody"}}


def test_a_client_may_do_with_leases_what_it_needs_and_nothing_else(namespace: Namespace) -> None:
    api = namespace.account.api()
    assert api.ok("POST", namespace.leases, lease("a"))["spec"]["holderIdentity"] == "somebody"
    assert [each["metadata"]["name"] for each in api.items(namespace.leases)] == ["a"]
    assert api("GET", f"/api/v1/namespaces/{namespace.name}/secrets").status_code == 403
    assert api("GET", "/apis/coordination.k8s.io/v1/leases").status_code == 403
    assert api("DELETE", namespace.leases).status_code == 403  # deletecollection
    api.close()


def test_rights_end_and_come_back(namespace: Namespace) -> None:
    api = namespace.account.api()
    namespace.account.forbid()
    assert api("GET", namespace.leases).status_code == 403
    namespace.account.permit()
    assert api("GET", namespace.leases).status_code == 200
    api.close()


def test_a_token_is_good_until_its_end(namespace: Namespace) -> None:
    codes = {}
    for seconds in (-1, 60):
        api = namespace.account.api(namespace.account.short_token(seconds))
        codes[seconds] = api("GET", namespace.leases).status_code
        api.close()
    assert codes == {-1: 401, 60: 200}
    api = namespace.account.api("garbage")
    assert api("GET", namespace.leases).status_code == 401
    api.close()


def test_a_kubeconfig_says_how_to_get_there(namespace: Namespace, kubeconfig: Path) -> None:
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    assert config["contexts"][0]["context"]["namespace"] == namespace.name
    api = namespace.account.api(config["users"][0]["user"]["token"])
    assert api("GET", namespace.leases).status_code == 200
    api.close()


def test_somebodys_cluster_serves_as_well(
    kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = kubernetes.own.administrator_kubeconfig(tmp_path / "administrator")
    monkeypatch.setenv("LEASECTL_TEST_KUBECONFIG", str(kubeconfig))
    with kubernetes_servers() as theirs, new_namespace(theirs) as namespace:
        assert namespace.lease_names() == []
        path = f"/api/v1/namespaces/{namespace.name}"
        assert kubernetes.administrators[0].ok("GET", path)["status"]["phase"] == "Active"
    # Here nobody finishes that.
    assert kubernetes.administrators[0].ok("GET", path)["status"]["phase"] == "Terminating"


def test_without_an_api_server_tests_are_skipped_unless_there_should_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_programs() is None
    assert "apiserver/build" in how_to_have_one()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        find_programs()
