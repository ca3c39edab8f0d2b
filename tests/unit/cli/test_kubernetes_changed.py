"""What the documentation says that one reads when hands, rights or clusters change."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes-troubleshooting.md"
_ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<said>[^|]+) \| (?P<code>\d+) \| [^|]*\|$", re.MULTILINE
)


class Said(NamedTuple):
    """What a row of the page says that one reads, and the exit code."""

    line: str
    code: int


def rows() -> dict[str, Said]:
    """The rows of the page that have a message, by what was done."""
    found = {}
    for row in _ROW.finditer(PAGE.read_text()):
        if line := re.search(r"`([^`]*[… ][^`]*)`", row["said"]):
            found[row["what"]] = Said(line[1], int(row["code"]))
    return found


class Site:
    """A pool in a cluster, and somebody who uses it.

    Args:
        cli: Whose commands it is used by.
        namespace: Where it is.
        kubeconfig: As whom.
    """

    def __init__(self, cli: Cli, namespace: Namespace, kubeconfig: Path) -> None:
        self.cli, self.namespace, self.kubeconfig = cli, namespace, kubeconfig
        cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))
        cli.ok("pool", "create", "t", "--count", "1")

    def hold(self) -> str:
        """Acquire what there is; returns the handle's path."""
        return self.cli.ok("acquire", "-t", "t", "--ttl", "1h").rstrip("\n")

    def delete(self, begin: str) -> None:
        """Delete the Lease whose name begins so, as whoever may everything."""
        (name,) = [each for each in self.namespace.lease_names() if each.startswith(begin)]
        self.namespace.administrator.ok("DELETE", f"{self.namespace.leases}/{name}")

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        """Change a Lease, likewise."""
        self.namespace.administrator.ok(
            "PATCH",
            f"{self.namespace.leases}/{name}",
            patch,
            content_type="application/merge-patch+json",
        )

    def annotate(self, key: str, value: str | None) -> None:
        """Edit an annotation of the one resource."""
        self.patch("t--00", {"metadata": {"annotations": {f"leasectl.dev/{key}": value}}})

    def change_kubeconfig(self, part: str, change: dict[str, Any]) -> None:
        """Change the one cluster or user of the kubeconfig."""
        config = json.loads(self.kubeconfig.read_text())
        config[f"{part}s"][0][part].update(change)
        self.kubeconfig.write_text(json.dumps(config))

    def log_in_by(self, script: str) -> None:
        """Have a program say who we are."""
        program = self.cli.cwd / "plugin"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        said = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
        self.change_kubeconfig("user", {"token": None, "exec": said})


def held_deleted(site: Site) -> Finished:
    handle = site.hold()
    site.delete("t--00")
    return site.cli("renew", handle)


def ticket_deleted(site: Site) -> Finished:
    site.hold()
    waiting = site.cli.start("acquire", "-q", "-t", "t")
    eventually(lambda: json.loads(site.cli.ok("status", "--json"))["pools"][0]["queue"])
    site.delete("leasectl-ticket-")
    return waiting.finish()


def pool_deleted(site: Site) -> Finished:
    handle = site.hold()
    site.delete("leasectl-pool-")
    return without_pool(site, handle)


def pool_damaged(site: Site) -> Finished:
    handle = site.hold()
    damaged = {"metadata": {"annotations": {"leasectl.dev/settings": "{"}}}
    site.patch("leasectl-pool-t", damaged)
    refused = without_pool(site, handle)
    site.delete("leasectl-pool-")
    site.cli.ok("doctor", "--fix")
    site.cli.ok("status", "-t", "t")
    return refused


def without_pool(site: Site, handle: str) -> Finished:
    """What one reads of a pool that hands have taken away; its holder keeps what it has."""
    refused = site.cli("acquire", "-t", "t")
    for command in ("status", "pool list"):
        shown = site.cli(*command.split())
        assert (shown.code, shown.out, shown.err) == (0, "", refused.err)
    site.cli.ok("renew", handle)
    site.cli.ok("doctor", "--fix")
    assert site.cli.ok("release", handle) == "t--00\n"
    return refused


def fields_edited(site: Site) -> Finished:
    handle = site.hold()
    site.patch("t--00", {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    found = site.cli("doctor")
    site.cli.ok("renew", handle)
    assert "don't count" not in site.cli.ok("doctor")
    return found


def labels_taken_off(site: Site) -> Finished:
    handle = site.hold()
    site.patch("t--00", {"metadata": {"labels": None}})
    assert site.cli("renew", handle).code == 79
    assert site.cli("acquire", "-t", "t", "-w", "0").code == 64  # it isn't among the pool's
    return site.cli("doctor")


def claim_taken_off(site: Site) -> Finished:
    handle = site.hold()
    site.annotate("claim", None)
    assert site.cli("renew", handle).code == 79
    assert site.cli("acquire", "-t", "t", "-w", "0").code == 75
    return site.cli("doctor")


def annotation_damaged(site: Site) -> Finished:
    handle = site.hold()
    site.annotate("last", "{")
    assert site.cli("renew", handle).code == 79
    return site.cli("doctor")


def name_taken(site: Site) -> Finished:
    theirs = {"metadata": {"name": "t--01"}}
    site.namespace.administrator.ok("POST", site.namespace.leases, theirs)
    return site.cli("pool", "add", "t", "--names", "t--01")


def role_taken_away(site: Site) -> Finished:
    handle = site.hold()
    site.namespace.account.forbid()
    return site.cli("renew", handle)


def token_expired(site: Site) -> Finished:
    handle = site.hold()
    token = json.loads(site.kubeconfig.read_text())["users"][0]["user"]["token"]
    site.change_kubeconfig("user", {"token": "expired"})
    refused = site.cli("renew", handle)
    site.change_kubeconfig("user", {"token": token})
    site.cli.ok("renew", handle)
    return refused


def plugin_fails(site: Site) -> Finished:
    site.log_in_by("echo 'the session is over' >&2; exit 3")
    return site.cli("status")


def plugin_hangs(site: Site) -> Finished:
    site.log_in_by("sleep 100")
    return site.cli("acquire", "-t", "t", "-w", "0.5s")


def kubeconfig_deleted(site: Site) -> Finished:
    handle = site.hold()
    there = site.kubeconfig.read_text()
    site.kubeconfig.unlink()
    refused = site.cli("renew", handle)
    site.kubeconfig.write_text(there)
    assert site.cli.ok("release", handle) == "t--00\n"
    return refused


def kubeconfig_of_another(site: Site) -> Finished:
    handle = site.hold()
    site.change_kubeconfig("cluster", {"server": "https://127.0.0.1:9"})
    refused = site.cli("renew", handle)
    site.change_kubeconfig("cluster", {"server": site.namespace.administrator.server})
    assert site.cli.ok("release", handle) == "t--00\n"
    return refused


def namespace_ending(site: Site) -> Finished:
    handle = site.hold()
    site.namespace.delete()  # nothing runs here that would empty it
    refused = site.cli("pool", "add", "t", "--count", "1")
    site.cli.ok("renew", handle)
    assert site.cli.ok("release", handle) == "t--00\n"
    return refused


def namespace_gone(site: Site) -> Finished:
    never_made = {"LEASECTL_BACKEND": "kubernetes://never-made"}
    site.namespace.account.permit_everywhere(LEAST_RULES)
    shown = site.cli("status", **never_made)  # who may not look whether it is there
    assert (shown.code, "there are no pools yet" in shown.err) == (0, True)
    looks = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    site.namespace.account.permit_everywhere([*LEAST_RULES, looks])
    refused = site.cli("pool", "create", "t", "--count", "1", **never_made)
    for command in ("status", "status t", "pool list", "pool list --json", "acquire t"):
        assert site.cli(*command.split(), **never_made) == refused
    ran = site.cli("run", "t", "--optional", "-w", "1h", "--", "echo", "ran", **never_made)
    assert (ran.code, ran.out) == (0, "ran\n")
    return refused


SCENES: dict[str, Callable[[Site], Finished]] = {
    "`kubectl delete lease` on a held resource": held_deleted,
    "`kubectl delete lease` on a ticket": ticket_deleted,
    "`kubectl delete lease` on a pool": pool_deleted,
    "an annotation of a pool damaged": pool_damaged,
    "`kubectl edit` of holder or duration": fields_edited,
    "labels removed, for example by a tool that applies its own": labels_taken_off,
    "the annotation of a claim removed": claim_taken_off,
    "another annotation damaged": annotation_damaged,
    "another program's Lease has a name that leasectl needs": name_taken,
    "the Role deleted": role_taken_away,
    "the token expired": token_expired,
    "an exec plugin fails": plugin_fails,
    "an exec plugin hangs": plugin_hangs,
    "the kubeconfig of a handle deleted": kubeconfig_deleted,
    "the kubeconfig of a handle names another cluster": kubeconfig_of_another,
    "the namespace is being deleted": namespace_ending,
    "the namespace doesn't exist": namespace_gone,
}


def test_each_row_of_the_page_is_tried() -> None:
    assert list(rows()) == list(SCENES)


@pytest.mark.parametrize("what", SCENES)
def test_one_reads_what_the_page_says(
    what: str, cli: Cli, namespace: Namespace, kubeconfig: Path
) -> None:
    said = rows()[what]
    finished = SCENES[what](Site(cli, namespace, kubeconfig))
    line = ".*".join(map(re.escape, said.line.split("…")))
    text = finished.err if said.code else finished.out
    assert finished.code == said.code, finished
    assert re.search(line, text), f"{line}\n{finished}"
    assert not said.code or finished.err.count("\n") == 1


def test_the_service_account_may_delete_with_kubectl_and_not_edit(
    cli: Cli, namespace: Namespace, kubeconfig: Path
) -> None:
    Site(cli, namespace, kubeconfig)
    for verb, is_allowed in (("delete", True), ("patch", False)):
        said = subprocess.run(
            ["kubectl", f"--kubeconfig={kubeconfig}", "auth", "can-i", verb, "leases"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (said.stdout == "yes\n") is is_allowed, said
