"""Events on Kubernetes, as people and others who look at the cluster have them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test


def use(cli: Cli, kubeconfig: Path) -> None:
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))


def elsewhere(cli: Cli, tmp_path: Path) -> None:
    """Go on as another machine."""
    cli.env["LEASECTL_STATE_DIR"] = str(tmp_path / "elsewhere")


def events(cli: Cli, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.ok("events", "--json", *args).splitlines()]


def kinds(cli: Cli) -> list[str]:
    return [each["kind"] for each in events(cli)]


def lease_and_release(cli: Cli, pool_type: str = "T") -> None:
    cli.ok("release", "--handle", cli.ok("acquire", "-t", pool_type).rstrip("\n"))


ONE_HOLD = ["queued", "granted", "released"]


def test_a_lease_tells_its_story_in_kubernetes(
    cli: Cli, kubeconfig: Path, namespace: Namespace
) -> None:
    use(cli, kubeconfig)
    name = "Big_Name." + "x" * 200
    cli.ok("pool", "create", "T", "--names", f"{name},b")
    cli.ok("release", "--handle", cli.ok("acquire", "-t", "T", "-c", "2").rstrip("\n"))
    leases = namespace.administrator.items(namespace.leases)
    by_uid = {each["metadata"]["uid"]: each["metadata"]["name"] for each in leases}
    told: dict[str, list[str]] = {}
    for each in namespace.administrator.items(namespace.events):
        about = each["regarding"]
        assert about.get("uid", "") in (*by_uid, "")
        told.setdefault(about["name"], []).append(each["reason"])
    of_resources = [by_uid[each["metadata"]["uid"]] for each in leases]
    stories = [sorted(told[each]) for each in of_resources if not each.startswith("leasectl-")]
    assert stories == [["Granted", "Released"], ["Granted", "Released"]]


def test_where_they_are_forbidden_all_else_works_and_it_is_said_once(
    cli: Cli, kubeconfig: Path, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.account.permit(LEAST_RULES[:1])
    use(cli, kubeconfig)
    made = cli("pool", "create", "T", "--count", "1")
    acquired = cli("acquire", "-t", "T")
    released = cli("release", "--all")
    said = [each.err.count("no events are written") for each in (made, acquired, released)]
    assert (said, released.code) == ([1, 0, 0], 0)
    shown = cli("events")
    assert "only events of this machine are shown" in shown.err
    assert kinds(cli) == ["pool made", *ONE_HOLD]
    elsewhere(cli, tmp_path)
    assert kinds(cli) == []
    assert namespace.administrator.items(namespace.events) == []


def test_a_server_that_hangs_at_them_keeps_nobody_and_this_machine_has_them(
    cli: Cli, namespace: Namespace, between_api: Relay, tmp_path: Path
) -> None:
    kubeconfig = namespace.account.kubeconfig(tmp_path / "between", server=between_api.endpoint)
    use(cli, kubeconfig)
    cli.ok("pool", "create", "T", "--count", "1")
    goes_on = threading.Event()

    def hang(number: int, path: str) -> bytes | None:
        if not path.endswith("/events"):
            return None
        goes_on.wait(60)
        return b""  # by then nobody waits for it, and it hasn't arrived

    between_api.instead = hang
    lease_and_release(cli)  # ends although nothing of it was answered
    assert not goes_on.is_set()
    between_api.instead = lambda number, path: None
    goes_on.set()
    lease_and_release(cli)
    assert kinds(cli) == ["pool made", *ONE_HOLD, *ONE_HOLD]
    numbers = [each["number"] for each in events(cli)]
    assert numbers == sorted(set(numbers))
    elsewhere(cli, tmp_path)
    assert kinds(cli) == ["pool made", *ONE_HOLD]  # of what was told
