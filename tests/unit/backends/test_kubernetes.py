"""``kubernetes://``, as commands have it: on a real API server, as a service account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.kinds import place_of
from leasectl.backends.kubernetes import KubernetesBackend
from leasectl.errors import FileUnreadable
from leasectl.http.settings import Settings, encode_settings, parse_settings
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.servers import Kubernetes
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test
URL = "kubernetes://"


@pytest.fixture
def cluster(cli: Cli, kubeconfig: Path) -> Cli:
    cli.env.update(LEASECTL_BACKEND=URL, LEASECTL_KUBECONFIG=str(kubeconfig))
    return cli


def test_which_cluster_is_found_in_the_environment_and_recorded(kubeconfig: Path) -> None:
    found = KubernetesBackend.locate(URL, Settings(), {"LEASECTL_KUBECONFIG": str(kubeconfig)})
    assert found.cluster is not None
    assert str(kubeconfig) in found.cluster
    assert "token" not in found.cluster
    assert parse_settings(encode_settings(found)) == found
    with pytest.raises(FileUnreadable, match="LEASECTL_KUBECONFIG"):
        KubernetesBackend.locate(URL, Settings(), {"LEASECTL_KUBECONFIG": "/nonexistent"})


def test_a_place_is_a_namespace_whichever_words_name_it(kubeconfig: Path) -> None:
    def place(url: str) -> str:
        found = KubernetesBackend.locate(url, Settings(), {"LEASECTL_KUBECONFIG": str(kubeconfig)})
        return place_of(url, encode_settings(found))

    namespace = json.loads(kubeconfig.read_text())["contexts"][0]["context"]["namespace"]
    assert place(URL) == place(f"{URL}{namespace}")
    assert place(URL) == place(f"{URL}?kubeconfig={kubeconfig}")
    assert place(URL) != place(f"{URL}another")
    assert place_of(URL, "") == URL  # as of a version that recorded none
    assert place_of("etcd://h:1", "") == "etcd://h:1"


def test_four_who_add_names_at_once_add_all_that_they_say(cluster: Cli) -> None:
    cluster.ok("pool", "create", "T", "--count", "1")
    adding = [cluster.start("pool", "add", "T", "--count", "3") for _ in range(4)]
    ends = [each.finish() for each in adding]
    assert [each.code for each in ends] == [0] * 4, ends
    (pool,) = json.loads(cluster.ok("status", "--json"))["pools"]
    assert sorted(each["name"] for each in pool["resources"]) == [f"T--{n:02d}" for n in range(13)]


class TestTwoNamespacesByOneName:
    """As where ``KUBECONFIG`` changes under a step: the same words mean another place then."""

    @pytest.fixture
    def elsewhere(self, kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Path]:
        """The kubeconfig of another namespace, in which a pool has the same name."""
        with new_namespace(kubernetes) as namespace:
            yield namespace.account.kubeconfig(tmp_path / "elsewhere")

    @pytest.fixture
    def both(self, cluster: Cli, elsewhere: Path) -> Cli:
        for env in ({}, {"LEASECTL_KUBECONFIG": str(elsewhere)}):
            cluster.ok("pool", "create", "T", "--names", "a", **env)
        return cluster

    def test_a_name_is_released_where_it_was_addressed(self, both: Cli, elsewhere: Path) -> None:
        there = {"LEASECTL_KUBECONFIG": str(elsewhere)}
        here = both.ok("acquire", "-q", "-t", "T").strip()
        refused = both("release", "--backend", URL, "--names", "a", **there)
        assert (refused.code, refused.out) == (0, "")  # nobody has it there
        assert both.ok("cat", here).strip() == "a"
        for _ in range(3):  # whichever of the ids comes first
            other = both.ok("acquire", "-q", "-t", "T", **there).strip()
            assert both.ok("release", "--names", "a", **there).strip() == "a"
            assert both.ok("cat", other).strip() == ""
            assert both.ok("cat", here).strip() == "a"
        assert both.ok("release", "--names", "a").strip() == "a"

    def test_what_is_held_in_one_is_not_lost_in_the_other(self, both: Cli, elsewhere: Path) -> None:
        there = {"LEASECTL_KUBECONFIG": str(elsewhere)}
        here = both.ok("acquire", "-q", "-t", "T").strip()
        examined = both("doctor", **there)
        assert "lost" not in examined.out, examined.out
        assert both.ok("release", "--handle", here).strip() == "a"


def test_who_verifies_nothing_is_warned(cluster: Cli, kubeconfig: Path) -> None:
    config = json.loads(kubeconfig.read_text())
    there = config["clusters"][0]["cluster"]
    there.update({"insecure-skip-tls-verify": True, "certificate-authority": ""})
    kubeconfig.write_text(json.dumps(config))
    finished = cluster("status")
    assert (finished.code, finished.err.count("insecure-skip-tls-verify: anyone on")) == (0, 1)


def test_who_never_reached_a_cluster_leaves_nothing_to_be_undone(
    cluster: Cli, kubeconfig: Path
) -> None:
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig.write_text(json.dumps(config))
    assert cluster("acquire", "-t", "T", "-w", "0").code == 69
    assert cluster.query("SELECT count(*) FROM handle WHERE watched") == [(0,)]


def test_a_lease_is_had_shown_and_given_back(cluster: Cli, namespace: Namespace) -> None:
    cluster.ok("pool", "create", "T", "--count", "2")
    handle = cluster.ok("acquire", "-t", "T", "--ttl", "40s").rstrip("\n")
    assert cluster.ok("cat", "--handle", handle) == "T--00\n"
    (name,) = [each for each in namespace.lease_names() if each.startswith("t-00-")]
    spec = namespace.lease(name)["spec"]
    assert spec["holderIdentity"].endswith(Path(handle).name)
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (40, 0)
    (pool,) = json.loads(cluster.ok("status", "--json"))["pools"]
    assert (pool["capacity"], pool["held"]) == (2, 1)
    cluster.ok("renew", "--handle", handle)
    assert namespace.lease(name)["spec"]["renewTime"] > spec["renewTime"]
    # A handle goes on with the cluster that it has.
    cluster.env["LEASECTL_KUBECONFIG"] = "/nonexistent"
    assert cluster.ok("release", "--handle", handle) == "T--00\n"
    assert "holderIdentity" not in namespace.lease(name)["spec"]


def test_what_is_expected_is_applied(cluster: Cli) -> None:
    path = cluster.cwd / "expected.yaml"
    path.write_text(
        "resources:\n"
        "- {type: T, min-count: 0, max-count: 9, expect: [n-1, 'edge-*']}\n"
        "- {type: U, min-count: 0, max-count: 9}\n"
    )
    cluster.ok("pool", "create", "T", "--names", "t-1")
    cluster.ok("pool", "create", "U", "--names", "u-1")
    cluster.ok("pool", "set", "U", "--default", "--grace", "0")
    cluster.ok("pool", "add", "U", "--names", "n-1,edge-1")
    handle = cluster.ok("acquire", "U", "--name", "n-1").rstrip("\n")
    cluster.ok("pool", "expect", "T", "--match", "old-*")
    cluster.ok("pool", "apply", "-f", str(path))
    assert cluster.ok("pool", "of", "edge-1", "--format", "type") == "T\n"
    assert cluster.ok("pool", "of", "n-1", "--format", "type") == "U\n"
    cluster.ok("release", handle)
    assert cluster.ok("pool", "of", "n-1", "--format", "type") == "T\n"
    found = json.loads(cluster.ok("pool", "expect", "--list", "--json"))["expectations"]
    assert [each["name"] or each["pattern"] for each in found] == ["n-1", "edge-*"]
    again = cluster("pool", "apply", "-f", str(path))
    assert again.err.splitlines()[-2:] == [f'leasectl: pool "{each}": unchanged' for each in "TU"]


def test_a_run_whose_lease_is_taken_away_by_force_is_ended(cluster: Cli) -> None:
    cluster.ok("pool", "create", "T", "--count", "1")
    running = cluster.start("run", "-t", "T", "--", "sleep", "1000")
    found = eventually(lambda: re.search(r"T--00", cluster.ok("status")))
    assert found
    cluster.ok("release", "--names", "T--00", "--force")
    assert running.finish().code == 79
    assert json.loads(cluster.ok("status", "--json"))["pools"][0]["held"] == 0


def test_what_is_wrong_is_said_in_a_line(cluster: Cli, namespace: Namespace) -> None:
    cluster.ok("pool", "create", "T", "--count", "1")
    for args, code in (
        (("acquire", "-t", "U"), 66),
        (("acquire", "-t", "T", "-c", "2"), 64),
        (("acquire", "-t", "T", "-c", "101"), 64),
        (("pool", "create", "T", "--count", "1"), 64),
        (("status", "--backend", "kubernetes://A_B"), 64),
    ):
        finished = cluster(*args)
        assert (finished.code, finished.err.count("\n")) == (code, 1), finished
    namespace.account.forbid()
    refused = cluster("acquire", "-q", "-t", "T")
    assert (refused.code, refused.err.count("\n")) == (77, 1)
    assert "leases" in refused.err
