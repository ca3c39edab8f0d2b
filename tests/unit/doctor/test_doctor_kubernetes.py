"""``leasectl doctor`` on Kubernetes: which cluster, as whom, with what rights, and how it is."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.kit.doctor_reports import Report, doctor
from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test

CHECKS = (
    *("cluster", "kubeconfig", "kubectl", "cluster user", "cluster rights", "cluster objects"),
    *("cluster claims", "cluster names"),
)


@pytest.fixture
def cluster(cli: Cli, kubeconfig: Path) -> Cli:
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))
    cli.ok("pool", "create", "T", "--count", "2")
    return cli


def edit(namespace: Namespace, name: str, **annotations: str | None) -> None:
    """Edit an object by hand."""
    notes = {f"leasectl.dev/{key}": value for key, value in annotations.items()}
    namespace.administrator.ok(
        "PATCH",
        f"{namespace.leases}/{name}",
        {"metadata": {"annotations": notes}},
        content_type="application/merge-patch+json",
    )


def objects(cli: Cli, *args: str) -> Any:
    return doctor(cli, *args)["cluster objects"]


def test_it_says_which_cluster_and_why_and_as_whom(
    cluster: Cli, namespace: Namespace, kubeconfig: Path
) -> None:
    cluster.ok("acquire", "-t", "T")
    report = doctor(cluster)
    server = namespace.administrator.server
    assert {name: report[name]["status"] for name in CHECKS} == dict.fromkeys(CHECKS, "ok")
    assert report.code == 0
    assert report["cluster"]["what"] == (
        f'{server}, namespace "{namespace.name}", from context "test" in {kubeconfig}, '
        "because LEASECTL_KUBECONFIG names its kubeconfig"
    )
    assert report["cluster user"]["what"] == namespace.account.user
    assert report["cluster objects"]["what"] == "1 pool, 1 held, 0 waiting"
    assert (
        report["cluster claims"]["what"]
        == "1 claim of this state directory, all with a handle here"
    )
    assert report["cluster names"]["what"] == "2 resources, none outside its expected pool"


def test_another_cluster_in_KUBECONFIG_is_warned_of(
    cluster: Cli, kubeconfig: Path, tmp_path: Path
) -> None:
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://under-test"
    theirs = tmp_path / "theirs"
    theirs.write_text(json.dumps(config))
    found = doctor(cluster, KUBECONFIG=str(theirs))["kubectl"]
    assert found["status"] == "warn"
    assert "https://under-test, from context " in found["what"]
    assert doctor(cluster, KUBECONFIG=str(kubeconfig))["kubectl"]["status"] == "ok"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_kubeconfig_that_others_can_write_is_warned_of(
    mode: int, cluster: Cli, kubeconfig: Path, tmp_path: Path
) -> None:
    kubeconfig.chmod(mode)
    listed = f"{tmp_path / 'none'}:{kubeconfig}"
    found = doctor(cluster, LEASECTL_KUBECONFIG=None, KUBECONFIG=listed)["kubeconfig"]
    assert (found["status"], found["what"]) == (
        "warn",
        f"other users can write {kubeconfig}, and so make you run any program",
    )
    assert found["advice"].startswith(f"run: chmod go-w {kubeconfig};")
    kubeconfig.chmod(0o644)
    assert doctor(cluster)["kubeconfig"]["status"] == "ok"


def test_a_namespace_that_is_not_there_is_a_failure(cluster: Cli, namespace: Namespace) -> None:
    namespace.account.permit_everywhere(LEAST_RULES)
    report = doctor(cluster, LEASECTL_BACKEND="kubernetes://never-made")
    rights = report["cluster rights"]
    assert (report.code, rights["status"]) == (64, "fail")
    assert rights["what"].endswith('has no namespace "never-made"')
    assert "kubectl create namespace never-made" in rights["advice"]


@pytest.mark.parametrize(
    ("resource", "verb", "status"),
    [("leases", "watch", "fail"), ("leases", "delete", "fail"), ("events", "create", "warn")],
)
def test_a_verb_that_is_missing_is_named(
    resource: str, verb: str, status: str, namespace: Namespace, cli: Cli, kubeconfig: Path
) -> None:
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))
    namespace.account.permit(
        [
            {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
            if rule["resources"][0] == resource
            else rule
            for rule in LEAST_RULES
        ]
    )
    report = doctor(cli)
    rights = report["cluster rights"]
    assert rights["status"] == status
    assert rights["what"].partition(":")[0] == f"no right to {verb} {resource}.{GROUPS[resource]}"
    assert rights["advice"].endswith(
        f"leasectl kubernetes manifest --namespace {namespace.name} --service-account client | "
        "kubectl apply -f -"
    )
    assert report.code == (77 if status == "fail" else 0)


GROUPS = {"leases": "coordination.k8s.io", "events": "events.k8s.io"}


class TestWhatWasEdited:
    def test_a_pool_deleted_by_hand_is_made_again_with_fix_and_its_holder_stays(
        self, cluster: Cli, namespace: Namespace
    ) -> None:
        handle = cluster.ok("acquire", "-t", "T").rstrip("\n")
        pool = next(name for name in namespace.lease_names() if name.startswith("leasectl-pool"))
        namespace.administrator.ok("DELETE", f"{namespace.leases}/{pool}")
        assert (
            objects(cluster)["what"] == "pool was deleted by hand, its resources are still there: T"
        )
        fixed = objects(cluster, "--fix")
        assert (fixed["status"], fixed["fixed"]) == (
            "ok",
            "created again, without pace and aging: pool T",
        )
        (shown,) = json.loads(cluster.ok("status", "--json"))["pools"]
        assert (shown["held"], shown["free"]) == (1, 1)
        cluster.ok("release", "--handle", handle)

    def test_labels_and_fields_are_written_again_with_fix_as_the_annotations_say(
        self, cluster: Cli, namespace: Namespace
    ) -> None:
        handle = cluster.ok("acquire", "-t", "T", "--ttl", "1h").rstrip("\n")
        names = namespace.lease_names()
        before = {name: namespace.lease(name) for name in names}
        for name in names:  # as whoever applies a manifest without them
            raw = namespace.lease(name)
            raw["metadata"]["labels"] = {"app": "mine"}
            raw["spec"] = {}
            namespace.administrator.ok("PUT", f"{namespace.leases}/{name}", raw)
        found = objects(cluster)
        assert found["what"] == f"labels or fields were edited: {', '.join(names)}"
        assert cluster("acquire", "-t", "T", "-w", "0").code == 66
        fixed = objects(cluster, "--fix")
        assert fixed["fixed"] == f"restored: {', '.join(names)}"
        for name in names:
            lease = namespace.lease(name)
            assert lease["metadata"]["labels"] == {
                **before[name]["metadata"]["labels"],
                "app": "mine",
            }
            assert lease["spec"].get("holderIdentity") == before[name]["spec"].get("holderIdentity")
        assert cluster.ok("release", "--handle", handle) == "T--00\n"
        assert objects(cluster)["status"] == "ok"

    def test_what_is_not_ours_is_not_touched(self, cluster: Cli, namespace: Namespace) -> None:
        # Some are called as ours are.
        for name in ("other", "t--02", "leasectl-pool-other", "leasectl-belonging"):
            namespace.administrator.ok(
                "POST",
                namespace.leases,
                {"metadata": {"name": name}, "spec": {"holderIdentity": "somebody"}},
            )
        before = [namespace.lease(name) for name in namespace.lease_names()]
        assert objects(cluster, "--fix")["what"] == "1 pool, 0 held, 0 waiting"
        refused = cluster("pool", "create", "other", "--count", "1")
        assert refused.code == 77
        assert 'Lease "leasectl-pool-other" in namespace ' in refused.err
        cluster.ok("release", "--handle", cluster.ok("acquire", "-t", "T").rstrip("\n"))
        cluster.ok("pool", "delete", "T")
        after = [namespace.lease(name) for name in namespace.lease_names()]
        assert [each for each in before if "labels" not in each["metadata"]] == after

    def test_what_others_hold_and_what_is_being_deleted_is_named(
        self, cluster: Cli, namespace: Namespace
    ) -> None:
        names = namespace.lease_names()
        resource = next(name for name in names if name.startswith("t-00"))
        namespace.administrator.ok(
            "PATCH",
            f"{namespace.leases}/{resource}",
            {"spec": {"holderIdentity": "somebody"}},
            content_type="application/merge-patch+json",
        )
        pool = next(name for name in names if name.startswith("leasectl-pool"))
        edit(namespace, pool, state='["closing", "w"]')
        assert objects(cluster)["what"] == (
            "held by another program: T--00; unfinished creation or deletion: pool T"
        )
        edit(namespace, pool, state=None)
        refused = cluster("release", "--names", "T--00", "--force")
        assert (refused.code, refused.err.count("\n")) == (77, 1)
        assert 'T--00 is held by "somebody", which is not leasectl' in refused.err


def test_a_ticket_that_hands_have_written_before_its_first_renewal_is_named(
    cluster: Cli, namespace: Namespace
) -> None:
    cluster.ok("acquire", "-t", "T", "-c", "2")
    waiting = cluster.start("acquire", "-t", "T", "-w", "10m", "-q")

    def tickets() -> list[str]:
        return [each for each in namespace.lease_names() if each.startswith("leasectl-ticket-")]

    eventually(tickets)
    assert objects(cluster)["what"] == "1 pool, 2 held, 1 waiting"
    (ticket,) = tickets()
    edit(namespace, ticket, **{"seen-by": "somebody"})
    assert objects(cluster)["what"] == f"damaged by an edit: {ticket}"
    waiting.kill()


def test_a_claim_that_no_record_knows_is_given_back_with_fix(cluster: Cli) -> None:
    cluster.ok("acquire", "-t", "T")
    cluster.ok(
        "acquire", "-t", "T", "--ttl", "1h", LEASECTL_STATE_DIR=f"{cluster.state_dir}-of-another"
    )
    with contextlib.closing(sqlite3.connect(cluster.state_dir / "state.db")) as db:
        db.execute("DELETE FROM handle")
        db.execute("DELETE FROM lease")
        db.commit()
    claims = doctor(cluster)["cluster claims"]
    assert claims["status"] == "warn"
    assert claims["what"].startswith("claims in the cluster that no handle here holds: ")
    assert doctor(cluster, "--fix")["cluster claims"]["fixed"] == (
        "gave back T--00; recorded as lost: none"
    )
    (shown,) = json.loads(cluster.ok("status", "--json"))["pools"]
    assert (shown["held"], shown["free"]) == (1, 1)


def test_nothing_is_changed_by_looking(cluster: Cli, namespace: Namespace) -> None:
    cluster.ok("acquire", "-t", "T", "--ttl", "1h")
    before = [namespace.lease(name) for name in namespace.lease_names()]
    assert isinstance(doctor(cluster), Report)
    after = [namespace.lease(name) for name in namespace.lease_names()]
    assert [each["metadata"]["resourceVersion"] for each in after] == [
        each["metadata"]["resourceVersion"] for each in before
    ]
