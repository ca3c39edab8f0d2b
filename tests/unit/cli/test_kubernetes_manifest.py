"""``leasectl kubernetes manifest``: applied by kubectl to a real API server, and heeded there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from leasectl.maintenance.objects import STATUS
from tests.kit.kubernetes.accounts import LEAST_RULES, MAINTENANCE_RULES, Account, Rules
from tests.kit.kubernetes.api import Object, write_kubeconfig
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, make_node
from tests.kit.kubernetes.servers import Kubernetes
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test

LEASES, EVENTS = LEAST_RULES


@pytest.fixture
def administrator(kubernetes: Kubernetes, tmp_path: Path) -> str:
    """The kubeconfig of somebody who may do everything."""
    given = os.environ.get("LEASECTL_TEST_KUBECONFIG")
    return given or str(kubernetes.own.administrator_kubeconfig(tmp_path / "administrator"))


def manifest(cli: Cli, *args: str) -> list[Object]:
    """The objects that it prints."""
    return list(yaml.safe_load_all(cli.ok("kubernetes", "manifest", *args)))


def apply(cli: Cli, kubeconfig: str, *args: str, options: Sequence[str] = ()) -> list[str]:
    """What kubectl says of each object of a manifest."""
    text = cli.ok("kubernetes", "manifest", *args)
    said = subprocess.run(
        ["kubectl", "apply", "-f", "-", f"--kubeconfig={kubeconfig}", *options],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout.splitlines()


def rules_of(made: Sequence[Object], kind: str) -> list[Any]:
    (role,) = [each for each in made if each["kind"] == kind]
    rules: list[Any] = role["rules"]
    return rules


def kubeconfig_of(namespace: Namespace, account: str, path: Path) -> str:
    """A kubeconfig with a token of a service account that is there."""
    administrator = namespace.administrator
    asked = f"/api/v1/namespaces/{namespace.name}/serviceaccounts/{account}/token"
    said = administrator.ok("POST", asked, {"spec": {"expirationSeconds": 3600}})
    return str(
        write_kubeconfig(
            path,
            server=administrator.server,
            ca_file=administrator.ca_file,
            user={"token": said["status"]["token"]},
            namespace=namespace.name,
        )
    )


def test_what_is_allowed_is_the_least_that_is_known_to_do(cli: Cli) -> None:
    made = manifest(cli, "--namespace", "ci")
    assert [each["kind"] for each in made] == ["ServiceAccount", "Role", "RoleBinding"]
    assert rules_of(made, "Role") == list(LEAST_RULES)
    made = manifest(cli, "--maintenance", "--service-account", "ops:robot")
    assert [each["kind"] for each in made] == [
        *("Namespace", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ]
    assert rules_of(made, "ClusterRole") == list(MAINTENANCE_RULES)
    assert {each["metadata"].get("namespace") for each in made} == {None, "leasectl-maintenance"}
    assert made[-1]["subjects"] == made[2]["subjects"]
    assert made[-1]["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "ops"}]


@pytest.mark.parametrize(
    "args",
    [
        ("--namespace", "a\n- b"),
        ("--service-account", "a:b:c"),
        ("--pool", "T"),
        ("--pool", "T=0"),
        ("--pool", "T=1e3"),
        ("--pool", "T=100001"),
        ("--pool", "=1"),
        ("--pool", '"=1'),
        ("--pool", "T=1", "--pool", "T=2"),
        ("--pool", f"{'x' * 201}=1"),
        ("--pool", f"once.{'0' * 64}=1"),
        ("--expect", "edge"),
        ("--expect", "edge="),
        ("--expect", "=edge-*"),
        ("--expect", "edge=a/*"),
        ("--expect", "edge=x", "--expect", "lab=x"),
        ("--image", "leasectl"),
        ("--maintenance", "--image", "-x"),
        ("--maintenance", "--image", "a\nb"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused(cli: Cli, args: tuple[str, ...]) -> None:
    finished = cli("kubernetes", "manifest", *args)
    assert (finished.code, finished.out, finished.err.count("\n")) == (64, "", 1)


def test_a_service_account_so_bound_acquires_and_releases(
    cli: Cli, namespace: Namespace, administrator: str, tmp_path: Path
) -> None:
    # Names that one reader of YAML or the other takes for a number, or for no text at all.
    pools = ("--pool", "1e3=1", "--pool", "Null_=2", "--pool", "0x1F=1")
    args = ("--namespace", namespace.name, "--service-account", "1e3", *pools)
    assert len(apply(cli, administrator, *args)) == 10
    kubeconfig = kubeconfig_of(namespace, "1e3", tmp_path / "bound")
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=kubeconfig)
    eventually(lambda: cli("status").code == 0)
    handle = cli.ok("acquire", "-t", "Null_", "--count", "2", "-w", "10m").rstrip("\n")
    assert cli.ok("cat", "--handle", handle) == "Null_--00\nNull_--01\n"
    held = {name: namespace.lease(name)["spec"] for name in namespace.lease_names()}
    assert {said.rpartition(" ")[2] for said in apply(cli, administrator, *args)} == {"unchanged"}
    assert {name: namespace.lease(name)["spec"].get("holderIdentity") for name in held} == {
        name: spec.get("holderIdentity") for name, spec in held.items()
    }
    cli.ok("release", "--handle", handle)
    shown = json.loads(cli.ok("status", "--json"))["pools"]
    assert {each["type"]: each["free"] for each in shown} == {"1e3": 1, "Null_": 2, "0x1F": 1}


def test_the_deployment_runs_the_controller_with_the_rights_that_it_needs(
    cli: Cli, namespace: Namespace, administrator: str, tmp_path: Path
) -> None:
    args = ("--namespace", namespace.name, "--service-account", "keeper", "--maintenance")
    said = apply(cli, administrator, *args, "--image", "registry/leasectl:1.0.0")
    assert "deployment.apps/leasectl-maintenance created" in said
    applied = namespace.administrator.ok(
        "GET", f"/apis/apps/v1/namespaces/{namespace.name}/deployments/leasectl-maintenance"
    )
    assert applied["spec"]["replicas"] == 2
    pod = applied["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "keeper"
    (container,) = pod["containers"]
    assert container["image"] == "registry/leasectl:1.0.0"
    node = f"deployed-{namespace.name}"
    make_node(namespace.administrator, node)
    cli.env["LEASECTL_KUBECONFIG"] = kubeconfig_of(namespace, "keeper", tmp_path / "keeper")
    program, *command = container["command"]
    assert program == "leasectl"
    cli.start(*command, *container["args"])
    cli.ok("maintenance", "request", node, "--for", "1h", "--backend", "kubernetes://")

    def status() -> object:
        said = namespace.administrator.ok("GET", f"{NODES}/{node}")
        return said["metadata"]["annotations"].get(STATUS)

    eventually(lambda: status() == "active")
    namespace.administrator.ok("DELETE", f"{NODES}/{node}")
    bound = f"leasectl-maintenance:{namespace.name}:keeper"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    namespace.administrator.ok("DELETE", f"{bindings}/{bound}")


def test_expectations_are_added_to_those_that_there_are(
    cli: Cli, namespace: Namespace, administrator: str, kubeconfig: Path
) -> None:
    args = ("--namespace", namespace.name, "--pool", "edge=1", "--pool", "lab=1")
    expect = ("--expect", "edge=edge-*", "--expect", "edge=gpu-3")
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))

    def expected() -> dict[str, str]:
        found = json.loads(cli.ok("pool", "expect", "--list", "--json"))["expectations"]
        return {each["pattern"]: each["type"] for each in found}

    apply(cli, administrator, *args, *expect)
    refused = cli("pool", "add", "lab", "--names", "edge-7")
    assert (refused.code, 'is expected in pool "edge"' in refused.err) == (77, True)
    assert expected() == {"edge-*": "edge", "gpu-3": "edge"}
    cli.ok("pool", "set", "lab", "--default", "--grace", "0")
    cli.ok("pool", "expect", "lab", "--match", "lab-*")
    cli.ok("pool", "expect", "edge", "--match", "gpu-3", "--drop")
    cli.ok("pool", "join", "edge", "--name", "edge-7", "--ttl", "1h")
    for options in ((), _ON_THE_SERVER):
        apply(cli, administrator, *args, *expect, options=options)
        assert expected() == {"edge-*": "edge", "gpu-3": "edge", "lab-*": "lab"}
        shown = json.loads(cli.ok("pool", "list", "--json"))["pools"]
        assert [each["type"] for each in shown if each["default_grace_seconds"] is not None] == [
            "lab"
        ]
        told = json.loads(cli.ok("pool", "of", "edge-7", "--json"))
        assert (told["pool"], told["joined_for_seconds"]) == ("edge", 3600)


# As tools do that keep a cluster as a repository says it is.
_ON_THE_SERVER = ("--server-side", "--force-conflicts")


def test_it_is_applied_again_in_whatever_way_and_holders_and_waiters_stay(
    cli: Cli, namespace: Namespace, administrator: str, kubeconfig: Path
) -> None:
    args = ("--namespace", namespace.name, "--pool", "T=2")
    apply(cli, administrator, *args, options=_ON_THE_SERVER)
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))
    cli.ok("pool", "set", "T", "--aging", "1h")
    handle = cli.ok("acquire", "-t", "T", "--count", "2", "--ttl", "1h").rstrip("\n")
    waiting = cli.start("acquire", "-q", "-t", "T")
    eventually(lambda: json.loads(cli.ok("status", "--json"))["pools"][0]["queue"])
    for options in ((), _ON_THE_SERVER):
        apply(cli, administrator, *args, options=options)
        cli.ok("renew", handle)
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    assert (pool["held"], len(pool["queue"])) == (2, 1)
    cli.ok("release", "--handle", handle)
    assert waiting.finish().code == 0


def as_told(refused: Finished, kubeconfig: str, cli: Cli) -> None:
    """Do what a refusal tells somebody who may to do."""
    assert refused.code == 77, refused
    line = refused.err.rstrip("\n").rpartition("ask an administrator to run: ")[2]
    env = {"KUBECONFIG": kubeconfig, "PATH": f"{Path(sys.executable).parent}:{cli.env['PATH']}"}
    done = cli.spawn(["bash", "-euo", "pipefail", "-c", line], **env).finish()
    assert done.code == 0, f"{line}\n{done}"


def test_who_may_nothing_may_lease_once_what_the_refusal_tells_is_done(
    cli: Cli, namespace: Namespace, administrator: str, tmp_path: Path
) -> None:
    nobody = namespace.new_account("nobody", EVENTS_ONLY)
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=saved(nobody, tmp_path))
    as_told(cli("pool", "create", "T", "--count", "1"), administrator, cli)
    eventually(lambda: cli("status").code == 0)
    cli.ok("pool", "create", "T", "--count", "1")
    cli.ok("release", "--handle", cli.ok("acquire", "-t", "T").rstrip("\n"))


EVENTS_ONLY: Rules = (EVENTS,)


def saved(account: Account, tmp_path: Path) -> str:
    return str(account.kubeconfig(tmp_path / account.name))


def test_account_of_jobs_uses_pools_and_only_the_admins_changes_them(
    cli: Cli, administrator: str, namespace: Namespace, tmp_path: Path
) -> None:
    there = ("--namespace", namespace.name, "--service-account", "jobs")
    apply(cli, administrator, *there, "--admin-account", "admins", "--pool", "T=1")
    jobs = {"LEASECTL_KUBECONFIG": kubeconfig_of(namespace, "jobs", tmp_path / "jobs")}
    admins = {"LEASECTL_KUBECONFIG": kubeconfig_of(namespace, "admins", tmp_path / "admins")}
    cli.env["LEASECTL_BACKEND"] = f"kubernetes://{namespace.name}"

    # Policies count a moment after they were made.
    def is_refused() -> bool:
        said = cli("pool", "create", "U", "--count", "1", **jobs)
        if said.code == 0:
            cli.ok("pool", "delete", "U", "--force", **admins)
        return said.code == 77

    eventually(is_refused, "the policy to count")

    cli.ok("pool", "set", "T", "--pace", "1s", **admins)
    for _ in range(2):
        cli.ok("run", "T", "-q", "--", "true", **jobs)
    handle = cli.ok("acquire", "-q", "T", **jobs).rstrip()
    waiter = cli.start("run", "-q", "T", "-w", "10m", "--", "true", **jobs)
    eventually(lambda: '"position": 1' in cli.ok("status", "--json", **jobs), "it to wait")
    for words in (
        ("pool", "delete", "T", "--force"),
        ("pool", "set", "T", "--pace", "1h"),
        ("pool", "add", "T", "--count", "1"),
        ("once", "key", "--", "true"),
    ):
        refused = cli(*words, **jobs)
        assert refused.code == 77, (words, refused)
        assert len(refused.err.splitlines()) == 1
    assert "cluster rights   all rights" in cli.ok("doctor", **jobs)
    cli.ok("renew", handle, **jobs)
    cli.ok("release", handle, **jobs)
    assert waiter.finish().code == 0
    cli.ok("pool", "add", "T", "--count", "1", **admins)
    cli.ok("pool", "delete", "T", **admins)
