"""The commands, as people type them, on a real API server."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from leasectl.maintenance.api_cluster import ApiCluster
from leasectl.maintenance.facts import Lease
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import (
    BEGUN_BY,
    BEGUN_WORD,
    CORDON_MARK,
    REQUEST,
    STATUS,
    lease_body,
    parse_node,
)
from leasectl.system.clock import rfc3339
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, end_pods, make_budget, make_pod, set_allowed
from tests.kit.support import Cli
from tests.kit.waits import eventually
from tests.unit.maintenance.conftest import US, annotations_of

pytestmark = pytest.mark.once

WRONG = (
    (("request", "NODE"), 64, "--for is missing"),
    (("request", "NODE", "--for", "0"), 64, "use a duration like 30m"),
    (("request", "NODE", "--for", "soon"), 64, "use a duration like 30m"),
    (("request", "nowhere", "--for", "1m"), 66, 'no node "nowhere"'),
    (("request", "../x", "--for", "1m"), 64, 'invalid node name "../x"'),
    (("status", "Worker"), 64, 'invalid node name "Worker"'),
    (("status", "--lease-name", "Foo-{node}"), 64, "use lower-case letters"),
    (("cancel", "nowhere"), 66, 'no node "nowhere"'),
    (("status", "nowhere"), 66, 'no node "nowhere"'),
    (("status", "--lease-name", "all"), 64, "must contain {node} once"),
    (("status", "--lease-namespace", "A/B"), 64, "invalid --lease-namespace"),
    (("status", "--backend", "local:"), 64, "pool cordon"),
    (("status", "--backend", "none:"), 64, "has no nodes"),
    (("status", "--backend", "etcd://h:1"), 64, "has no nodes"),
    (("status", "--lease-name", "{node}{node}"), 64, "must contain {node} once"),
    (("status", "--lease-name", f"{'a' * 250}{{node}}"), 64, "use lower-case letters"),
    (("status", "a" * 254), 64, "invalid node name"),
    (("status", "a" * 253), 66, "no node"),
    (("reconcile", "--grace-period", "soon"), 64, '"soon" is not a whole number'),
    (("reconcile", "--timeout", "soon"), 64, "invalid duration"),
    (("reconcile", "--identity", " "), 64, "use printable text"),
    (("reconcile", "--identity", "a\x1bb"), 64, "use printable text"),
    (("reconcile", "--lease-namespace", "nowhere"), 77, "is not allowed to"),
)


@pytest.fixture
def maintenance(cli: Cli, cluster: ApiCluster, kubeconfig: Path) -> Cli:
    """Commands as somebody who may do all that is needed, on a terminal of 80 columns."""
    cli.env.update(
        LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig), COLUMNS="80"
    )
    return cli


class TestReconcile:
    def test_a_node_goes_through_its_maintenance_and_a_replica_takes_over(
        self, maintenance: Cli, namespace: Namespace, node: str
    ) -> None:
        settings = ("--lease-namespace", namespace.name)
        make_pod(namespace, "web", node, labels={"app": "web"})
        make_pod(namespace, "agent", node, owner="DaemonSet")
        make_budget(namespace, "web", {"app": "web"}, allowed=0)
        first = maintenance.start("maintenance", "reconcile", *settings)
        maintenance.ok("maintenance", "request", node, "--for", "1h")

        def status() -> str:
            return str(annotations_of(namespace, node).get(STATUS))

        eventually(lambda: "disruption budget" in status())
        shown = maintenance.ok("maintenance", "status", node, *settings)
        assert "ours" in shown
        assert "1h" in shown
        second = maintenance.start("maintenance", "reconcile", *settings)
        first.signal(15)
        ended = first.finish()
        assert ended.code == -15
        assert "leading\n" in ended.err
        set_allowed(namespace, "web", 1)
        eventually(lambda: end_pods(namespace) == ["web"])
        eventually(lambda: status() == "active")
        maintenance.ok("maintenance", "cancel", node)
        eventually(lambda: status() == "ended")
        assert not namespace.administrator.ok("GET", f"{NODES}/{node}")["spec"].get("unschedulable")
        eventually(lambda: "leaseDurationSeconds" not in namespace.lease(node)["spec"])
        second.signal(15)
        assert f"{node}: ended (the request was cancelled)" in second.finish().err
        given_back = namespace.lease(LEASE_NAME)["spec"]
        assert "leaseDurationSeconds" not in given_back, "another may lead at once"

    # When more than the window and its padding has passed since then.

    @pytest.mark.parametrize("request_", ["1h", None])
    def test_a_window_with_an_acquire_time_of_the_year_1_ends(
        self, maintenance: Cli, namespace: Namespace, node: str, request_: str | None
    ) -> None:
        write(namespace, node, request=request_ or "", status="active", cordoned=True)
        uid = namespace.administrator.ok("GET", f"{NODES}/{node}")["metadata"]["uid"]
        lease = Lease(US, 60, -62135596799.0, -62135596799.0, 1, uid)
        body = lease_body(None, node, lease, node=node)
        namespace.administrator.ok("POST", namespace.leases, dict(body))
        maintenance.start("maintenance", "reconcile", "--lease-namespace", namespace.name)
        eventually(lambda: annotations_of(namespace, node).get(STATUS) == "ended")
        eventually(lambda: "leaseDurationSeconds" not in namespace.lease(node)["spec"])

    @pytest.mark.parametrize(
        ("option", "seconds"),
        [
            (("--grace-period", "7"), 7),
            (("--grace-period=-1", "--timeout", "0"), 30),  # no limit, as kubectl has it
        ],
    )
    def test_a_pod_has_the_time_to_end_that_it_says_or_is_told(
        self,
        maintenance: Cli,
        namespace: Namespace,
        node: str,
        option: tuple[str, ...],
        seconds: int,
    ) -> None:
        make_pod(namespace, "web", node)
        maintenance.ok("maintenance", "request", node, "--for", "1h")
        settings = ("--lease-namespace", namespace.name, *option)
        maintenance.start("maintenance", "reconcile", *settings)

        def grace_seconds() -> int | None:
            answer = namespace.administrator("GET", f"{namespace.pods}/web")
            if answer.status_code == 404:
                return 0  # it is gone at once
            found: int | None = answer.json()["metadata"].get("deletionGracePeriodSeconds")
            return found

        eventually(lambda: grace_seconds() is not None)
        assert grace_seconds() == seconds

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_it_while_it_waits_for_a_server_that_hangs(
        self, signum: int, maintenance: Cli, namespace: Namespace, tmp_path: Path
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as hangs:
            address = f"https://127.0.0.1:{hangs.getsockname()[1]}"
            path = namespace.account.kubeconfig(tmp_path / "hangs", server=address)
            started = maintenance.start("maintenance", "reconcile", LEASECTL_KUBECONFIG=str(path))
            with hangs.accept()[0]:
                started.signal(signum)
                ended = started.finish()
        assert (ended.code, ended.err.strip()) == (-signum, "")

    def test_what_may_go_is_what_options_say(
        self, maintenance: Cli, namespace: Namespace, node: str
    ) -> None:
        make_pod(namespace, "alone", node, owner=None)
        make_pod(namespace, "data", node, local_storage=True)
        make_pod(namespace, "mirror", node, owner="Node", mirror=True)
        settings = ("--lease-namespace", namespace.name, "--lease-name", "window-{node}")
        options = (*settings, "--identity", "us", "--quiet")
        maintenance.ok("maintenance", "request", node, "--for", "1h")
        started = maintenance.start("maintenance", "reconcile", *options)

        def status() -> str:
            return str(annotations_of(namespace, node).get(STATUS))

        why = {"alone": "no controller would replace it; evict it with --force"}
        why["data"] = "it has local data; evict it with --delete-emptydir-data"
        left = "; ".join(f"{namespace.name}/{name} ({why[name]})" for name in ("alone", "data"))
        eventually(lambda: status() == f"draining: {left}")
        assert namespace.lease(f"window-{node}")["spec"]["holderIdentity"] == "us"
        assert annotations_of(namespace, node)[CORDON_MARK] == "us"
        started.signal(15)
        assert started.finish().err == ""  # and the lead was given back, so that the next has it
        allowed = ("--force", "--delete-emptydir-data")
        maintenance.start("maintenance", "reconcile", *options, *allowed)
        ended = set[str]()

        def is_active() -> bool:
            ended.update(end_pods(namespace))
            return status() == "active"

        eventually(is_active)
        assert ended == {"alone", "data"}
        (mirror,) = namespace.administrator.items(namespace.pods)
        assert mirror["metadata"]["name"] == "mirror"

    def test_what_is_wrong_is_said_in_a_line(self, maintenance: Cli, node: str) -> None:
        for args, code, words in WRONG:
            finished = maintenance("maintenance", *(each.replace("NODE", node) for each in args))
            assert (finished.code, finished.err.count("\n")) == (code, 1), finished
            assert words in finished.err


class TestAsking:
    def test_says_what_was_asked_for_before(self, maintenance: Cli, node: str) -> None:
        def said(*args: str) -> str:
            finished = maintenance("maintenance", *args)
            assert (finished.code, finished.out) == (0, "")
            return finished.err

        requested = f"leasectl: requested maintenance of {node} for 30m\n"
        assert said("request", node, "--for", " 30m ") == requested
        assert said("request", node, "--for", "1800") == (
            f"leasectl: maintenance of {node} is already requested for 1800; for a new window, "
            f"run first: leasectl maintenance cancel {node}\n"
        )
        assert said("request", node, "--for", "1h") == (
            f'leasectl: changed the requested maintenance of {node} from "1800" to 1h, counted '
            "from the beginning of its window\n"
        )
        assert said("request", node, "--for", "2h", "-q") == ""
        assert said("cancel", node) == f"leasectl: cancelled the requested maintenance of {node}\n"
        assert said("cancel", node) == f"leasectl: no maintenance of {node} is requested\n"
        assert said("cancel", node, "--quiet") == ""

    def test_shows_what_somebody_wrote_there_as_text(
        self, maintenance: Cli, namespace: Namespace, node: str
    ) -> None:
        write(namespace, node, request="\x1b[2J")
        finished = maintenance("maintenance", "request", node, "--for", "1h")
        assert 'from "\\x1b[2J" to 1h' in finished.err


def write(
    namespace: Namespace, node: str, *, request: str = "", status: str = "", cordoned: bool = False
) -> None:
    """Have a node be as somebody has left it."""
    noted = {REQUEST: request or None, STATUS: status or None}
    noted[CORDON_MARK] = noted[BEGUN_BY] = US if cordoned else None
    noted[BEGUN_WORD] = "" if cordoned else None
    body = {"metadata": {"annotations": noted}, "spec": {"unschedulable": cordoned or None}}
    namespace.administrator.ok(
        "PATCH", f"{NODES}/{node}", body, content_type="application/merge-patch+json"
    )


class TestStatus:
    WHO = "somebody-who-is-called-so"

    @pytest.fixture
    def options(self, namespace: Namespace) -> tuple[str, ...]:
        return ("maintenance", "status", "--lease-namespace", namespace.name)

    def lead(self, cluster: ApiCluster) -> None:
        cluster.write_lease(LEASE_NAME, None, Lease("a", 3600, 1.7e9, 1.7e9))

    def test_of_no_node_is_said_and_of_one_is_shown(
        self, maintenance: Cli, options: tuple[str, ...], node: str
    ) -> None:
        finished = maintenance(*options)
        assert (finished.code, finished.out) == (0, "")
        assert finished.err == "leasectl: no maintenance is requested\n"
        maintenance.ok(*options, "--lease-name", f"{'a' * 249}{{node}}")
        finished = maintenance(*options, node)
        assert (finished.code, finished.err) == (0, "")
        pad = " " * (len(node) - 4)
        assert finished.out == (
            f"NODE{pad}  REQUESTED  STATUS  CORDONED  LEASE  ENDS IN\n"
            f"{node}  -          -       no        -            -\n"
        )

    def test_tells_who_asked_that_the_name_of_a_lease_is_too_long(
        self,
        maintenance: Cli,
        options: tuple[str, ...],
        cluster: ApiCluster,
        namespace: Namespace,
        node: str,
    ) -> None:
        self.lead(cluster)
        write(namespace, node, request="10m", status="invalid")
        name = "a" * 248
        assert cluster.lease(f"{name}-{node}") is None
        finished = maintenance(*options, "--lease-name", f"{name}-{{node}}")
        assert finished.err == (
            f"leasectl: {node}: the name of its Lease would have {249 + len(node)} characters; at "
            "most 253 are allowed; use a shorter --lease-name, with this command and leasectl "
            "maintenance reconcile\n"
        )

    def test_fits_a_terminal_and_is_in_full_of_one_node(
        self,
        maintenance: Cli,
        options: tuple[str, ...],
        cluster: ApiCluster,
        namespace: Namespace,
        node: str,
    ) -> None:
        self.lead(cluster)
        status = "draining: default/web (a disruption budget forbids it now\x1b)"
        write(namespace, node, request="x" * 13, status=status, cordoned=True)
        now = time.time()
        uid = parse_node(cluster.node(node) or {}).uid
        cluster.write_lease(node, None, Lease(self.WHO, 7230, now, now, 0, uid), node=node)
        finished = maintenance(*options, "--identity", self.WHO)
        assert (finished.code, finished.err) == (0, "")
        heading, row = finished.out.splitlines()
        assert max(map(len, (heading, row))) <= 80
        cells = row.split("  ")
        assert cells[0].startswith("node-lease")
        assert len(cells[0]) >= 24
        assert f"{'x' * 11}…" in cells
        assert "draining: de…" in cells
        assert "another's" in cells  # it is of the mark of `machine-remediation`
        assert row.split()[-1] in ("2h", "1h59m")
        *_, full = maintenance(*options, "--identity", self.WHO, node).out.splitlines()
        assert full == f"STATUS in full: {status[:-2]}\\x1b)"
        wide = maintenance.ok(*options, "--identity", self.WHO, node, COLUMNS="250")
        assert len(wide.splitlines()) == 2
        assert self.WHO in wide

    def test_in_json_is_all_as_it_was_written(
        self,
        maintenance: Cli,
        options: tuple[str, ...],
        cluster: ApiCluster,
        namespace: Namespace,
        node: str,
    ) -> None:
        write(namespace, node, request="1h\x1b", status="active", cordoned=True)
        lease = Lease(US, 3630, 1.7e9, 1.7e9 + 1)
        cluster.write_lease(node, None, lease, node=node)
        (shown,) = json.loads(maintenance(*options, "--json").out)
        assert shown == {
            "node": node,
            "asked": "1h\x1b",
            "status": "active",
            "cordon": "ours",
            "holder": US,
            "over_at": "2023-11-14T23:13:20.000000Z",
            "waits_until": None,
        }
        row = maintenance.ok(*options, node).splitlines()[1]
        assert row.split()[-1] == "0s"  # it has been over for long
        write(namespace, node)
        assert json.loads(maintenance.ok(*options, node, "--json"))[0] == {
            "node": node,
            "asked": None,
            "status": None,
            "cordon": None,
            "holder": US,
            "over_at": "2023-11-14T23:13:20.000000Z",
            "waits_until": None,
        }

    def test_says_until_when_a_node_waits(
        self,
        maintenance: Cli,
        options: tuple[str, ...],
        cluster: ApiCluster,
        namespace: Namespace,
        node: str,
    ) -> None:
        self.lead(cluster)
        write(namespace, node, request="1h", status="waiting")
        now = int(time.time())
        cluster.write_lease(node, None, Lease("upgrader", 7200, now - 60.0, float(now)))
        finished = maintenance(*options, node)
        until = str(rfc3339(now + 7200.0))
        assert finished.err == (
            f"leasectl: {node} waits for the Lease of upgrader, which expires at {until[:19]}Z "
            "unless it is renewed\n"
        )
        assert finished.out.split()[-1] in ("2h", "1h59m")
        (shown,) = json.loads(maintenance(*options, "--json").out)
        assert (shown["waits_until"], shown["over_at"]) == (until, None)
        written = cluster.lease(node)
        cluster.write_lease(node, written, Lease("upgrader", 90, None, 1.7e9))
        assert maintenance(*options, node).err == (
            f"leasectl: {node} waits for the Lease of upgrader, until the controller has seen no "
            "renewal for 1m30s\n"
        )

    def test_says_if_nobody_does_what_is_asked(
        self,
        maintenance: Cli,
        options: tuple[str, ...],
        cluster: ApiCluster,
        namespace: Namespace,
        node: str,
    ) -> None:
        write(namespace, node, status="ended")
        assert maintenance(*options).err == ""
        write(namespace, node, request="1h")
        line = (
            "no controller runs; start one with: leasectl maintenance reconcile "
            f"--lease-namespace {namespace.name}\n"
        )
        assert maintenance(*options).err == f"leasectl: {line}"
        assert maintenance(*options, node, "--json").err == f"leasectl: {line}"
        self.lead(cluster)
        assert maintenance(*options).err == ""
