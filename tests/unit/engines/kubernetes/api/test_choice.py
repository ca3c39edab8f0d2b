"""Which cluster, and as whom: in which order that is decided, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.api import choice
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import (
    ClusterChoice,
    choose,
    encode_choice,
    parse_choice,
)
from leasectl.errors import CorruptState, FileUnreadable, InvalidRequest
from tests.unit.engines.kubernetes.api.scripted import write_kubeconfig

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
ANY = KubernetesAddress()
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a kubeconfig whose cluster has the file's name."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_kubeconfig(path, f"https://{path.name}")

    return write


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as a pod has it."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("t\n")
    (folder / "namespace").write_text("here\n")
    monkeypatch.setattr(choice, "SERVICE_ACCOUNT", str(folder))


def test_the_more_particular_counts_more(write: Write, pod: None, tmp_path: Path) -> None:
    for name in ("address", "own", "kubectls", "home/.kube/config"):
        write(name)
    everything = {
        **POD,
        "LEASECTL_KUBECONFIG": str(tmp_path / "own"),
        "KUBECONFIG": str(tmp_path / "kubectls"),
        "HOME": str(tmp_path / "home"),
    }
    named = KubernetesAddress(kubeconfig=str(tmp_path / "address"))
    found = [choose(named, everything)]
    environment = dict(everything)
    for less in ("LEASECTL_KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBECONFIG", ""):
        found.append(choose(ANY, environment))
        environment.pop(less, None)
    assert [(each.chosen_by, each.server) for each in found] == [
        ("address", "https://address"),
        ("LEASECTL_KUBECONFIG", "https://own"),
        ("pod", "https://10.0.0.1:443"),
        ("KUBECONFIG", "https://kubectls"),
        ("HOME", "https://config"),
    ]
    assert all(each.why for each in found)
    assert found[0].found == f'context "x" in {tmp_path}/address'
    assert found[2].found == "the service account of this pod"


def test_who_names_a_context_means_a_kubeconfig(write: Write, pod: None) -> None:
    environment = {**POD, "KUBECONFIG": str(write("kubectls"))}
    chosen = choose(KubernetesAddress(context="x"), environment)
    assert (chosen.chosen_by, chosen.context) == ("KUBECONFIG", "x")


def test_a_pod_without_a_service_account_is_none(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "SERVICE_ACCOUNT", str(tmp_path / "nothing"))
    environment = {**POD, "KUBECONFIG": str(write("kubectls"))}
    assert choose(ANY, environment).chosen_by == "KUBECONFIG"


def test_an_address_of_ipv6_is_one(pod: None) -> None:
    environment = {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert choose(ANY, environment).server == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("address", "namespace"), [(KubernetesAddress("mine"), "mine"), (ANY, "here")]
)
def test_a_namespace_is_the_addresss_or_the_pods(
    address: KubernetesAddress, namespace: str, pod: None
) -> None:
    assert choose(address, POD).namespace == namespace


def test_or_that_of_the_context_or_the_usual_one(write: Write) -> None:
    path = write("config")
    environment = {"LEASECTL_KUBECONFIG": str(path)}
    assert choose(ANY, environment).namespace == "default"
    path.write_text(path.read_text().replace('"user": "u"}', '"user": "u", "namespace": "ci"}'))
    assert choose(ANY, environment).namespace == "ci"
    path.write_text(path.read_text().replace('"ci"', '"C I"'))
    with pytest.raises(InvalidRequest, match='invalid namespace "C I"'):
        choose(ANY, environment)


def test_what_was_named_has_to_be_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for address, environment in (
        (KubernetesAddress(kubeconfig=missing), {}),
        (ANY, {"LEASECTL_KUBECONFIG": missing}),
        (ANY, {"KUBECONFIG": missing}),
    ):
        with pytest.raises(FileUnreadable, match="missing"):
            choose(address, environment)


def test_without_any_it_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="name a kubeconfig in LEASECTL_KUBECONFIG"):
        choose(ANY, {"HOME": str(tmp_path), "KUBECONFIG": ":"})


def test_paths_are_those_of_the_folder_that_it_was_chosen_in(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("config")
    monkeypatch.chdir(tmp_path)
    chosen = choose(KubernetesAddress(kubeconfig="config"), {})
    assert chosen.kubeconfigs == (str(tmp_path / "config"),)


def test_what_is_recorded_is_read_back_and_holds_no_secret(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}
    path = write_kubeconfig(tmp_path / "a", "https://a", {"token": "s3cret", "exec": plugin})
    environment = {"HOME": "/root", "AWS_SECRET_ACCESS_KEY": "s3cret", "PATH": "/bin"}
    chosen = choose(KubernetesAddress(kubeconfig=str(path)), environment)
    assert chosen.environment == (("HOME", "/root"), ("PATH", "/bin"))
    text = encode_choice(chosen)
    assert "s3cret" not in text
    assert "\n" not in text
    assert parse_choice(text) == chosen


def test_variables_are_recorded_only_for_a_program(write: Write) -> None:
    chosen = choose(KubernetesAddress(kubeconfig=str(write("a"))), {"HOME": "/root"})
    assert chosen.environment == ()


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"a":1}', "{" * 9999])
def test_what_was_not_recorded_so_is_refused(text: str) -> None:
    with pytest.raises(CorruptState, match="newer leasectl"):
        parse_choice(text)


def test_what_a_newer_version_adds_is_refused(write: Write) -> None:
    text = encode_choice(choose(KubernetesAddress(kubeconfig=str(write("a"))), {}))
    with pytest.raises(CorruptState):
        parse_choice(text.replace("{", '{"more":1,', 1))


def test_who_verifies_nothing_is_warned(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "a", "https://a", **{"insecure-skip-tls-verify": True})
    chosen = choose(KubernetesAddress(kubeconfig=str(path)), {})
    assert "insecure-skip-tls-verify" in chosen.warning
    assert parse_choice(encode_choice(chosen)).warning == chosen.warning
    assert ClusterChoice("pod", "n", "https://a").warning == ""


@pytest.mark.parametrize(
    ("server", "is_warned"),
    [
        ("http://there:8080", True),
        ("http://10.0.0.1", True),
        ("http://localhost.there:80/x", True),
        ("http://127.0.0.1.there", True),
        ("http://127.0.0.1:8001", False),
        ("http://localhost:8001/x", False),
        ("http://localhost", False),
        ("http://[::1]:8001", False),
        ("https://there", False),
    ],
)
def test_so_is_who_shows_a_token_without_tls(server: str, is_warned: bool, tmp_path: Path) -> None:
    chosen = choose(KubernetesAddress(kubeconfig=str(write_kubeconfig(tmp_path / "a", server))), {})
    assert ("has an address without TLS" in chosen.warning) == is_warned
