"""The commands, as people type them, on a real API server."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.api_cluster import ApiCluster
from leasectl.maintenance.facts import Lease
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import CORDON_MARK, REQUEST, STATUS, parse_node
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, end_pods, make_budget, make_pod, set_allowed
from tests.kit.support import Cli
from tests.kit.waits import eventually
from tests.unit.maintenance.conftest import US, annotations_of

pytestmark = pytest.mark.once

WRONG = (
    (("request", "NODE"), 64, "Missing option '--for'"),
    (("request", "NODE", "--for", "0"), 64, "is no time"),
    (("request", "NODE", "--for", "soon"), 64, "is no time"),
    (("request", "nowhere", "--for", "1m"), 66, 'no node "nowhere"'),
    (("request", "../x", "--for", "1m"), 64, 'no node can be called "../x"'),
    (("status", "Worker"), 64, 'no node can be called "Worker"'),
    (("status", "--lease-name", "Foo-{node}"), 64, "no Lease can be called so"),
    (("cancel", "nowhere"), 66, 'no node "nowhere"'),
    (("status", "nowhere"), 66, 'no node "nowhere"'),
    (("status", "--lease-name", "all"), 64, "has to hold {node}"),
    (("status", "--lease-namespace", "A/B"), 64, "no name of a namespace"),
    (("status", "--backend", "local:"), 64, "pool cordon"),
    (("status", "--backend", "none:"), 64, "has no nodes"),
    (("status", "--backend", "etcd://h:1"), 64, "has no nodes"),
    (("status", "--lease-name", "{node}{node}"), 64, "has to hold {node}"),
    (("status", "--lease-name", f"{'a' * 250}{{node}}"), 64, "no Lease can be called so"),
    (("status", "a" * 254), 64, "no node can be called"),
    (("status", "a" * 253), 66, "no node"),
    (("reconcile", "--grace-period", "soon"), 64, "'soon' is not a valid integer"),
    (("reconcile", "--timeout", "soon"), 64, "invalid duration"),
    (("reconcile", "--identity", " "), 64, "nobody's"),
    (("reconcile", "--identity", "a\x1bb"), 64, "nobody's"),
    (("reconcile", "--lease-namespace", "nowhere"), 77, "may not"),
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
        assert f"{node}: ended (nothing is asked for any more)" in second.finish().err
        given_back = namespace.lease(LEASE_NAME)["spec"]
        assert "leaseDurationSeconds" not in given_back, "another may lead at once"

    @pytest.mark.parametrize(
        ("option", "seconds"),
        [
            ((), 30),
            (("--grace-period", "7"), 7),
            (("--grace-period", "0"), 0),
            (("--grace-period=-1",), 30),
            (("--timeout", "0"), 30),  # no limit, as kubectl has it
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

        why = {"alone": "no controller would make it again: --force"}
        why["data"] = "it has local data: --delete-emptydir-data"
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

    def test_it_evicts_nothing_more_after_its_time(
        self, maintenance: Cli, namespace: Namespace, node: str
    ) -> None:
        make_pod(namespace, "web", node, labels={"app": "web"})
        make_budget(namespace, "web", {"app": "web"}, allowed=0)
        maintenance.ok("maintenance", "request", node, "--for", "1h")
        settings = ("--lease-namespace", namespace.name, "--timeout", "2s")
        maintenance.start("maintenance", "reconcile", *settings)
        eventually(
            lambda: str(annotations_of(namespace, node).get(STATUS)).startswith(
                f"draining: given up after 2s; {namespace.name}/web ("
            )
        )

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

        asks = f"leasectl: {node} asks for maintenance of"
        assert said("request", node, "--for", " 30m ") == f"{asks} 30m\n"
        same = "already, counted from its beginning: nothing changes\n"
        assert said("request", node, "--for", "1800") == f"{asks} 1800 {same}"
        other = 'instead of "1800", counted from its beginning\n'
        assert said("request", node, "--for", "1h") == f"{asks} 1h {other}"
        assert said("request", node, "--for", "2h", "-q") == ""
        none = f"leasectl: {node} asks for no maintenance"
        assert said("cancel", node) == f"{none} any more\n"
        assert said("cancel", node) == f"{none}\n"
        assert said("cancel", node, "--quiet") == ""

    def test_shows_what_somebody_wrote_there_as_text(
        self, maintenance: Cli, namespace: Namespace, node: str
    ) -> None:
        write(namespace, node, request="\x1b[2J")
        finished = maintenance("maintenance", "request", node, "--for", "1h")
        assert 'instead of "\\x1b[2J"' in finished.err

    def test_reaches_a_cluster_that_is_away_not(
        self, maintenance: Cli, namespace: Namespace, node: str, tmp_path: Path
    ) -> None:
        away = namespace.account.kubeconfig(tmp_path / "away", server="https://127.0.0.1:9")
        finished = maintenance(
            "maintenance", "request", node, "--for", "1m", LEASECTL_KUBECONFIG=str(away)
        )
        assert finished.code == BackendUnreachable.exit_code
        assert finished.err.count("\n") == 1


def write(
    namespace: Namespace, node: str, *, request: str = "", status: str = "", cordoned: bool = False
) -> None:
    """Have a node be as somebody has left it."""
    noted = {REQUEST: request or None, STATUS: status or None}
    noted[CORDON_MARK] = US if cordoned else None
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
        assert finished.err == "leasectl: no node asks for maintenance\n"
        maintenance.ok(*options, "--lease-name", f"{'a' * 249}{{node}}")
        finished = maintenance(*options, node)
        assert (finished.code, finished.err) == (0, "")
        pad = " " * (len(node) - 4)
        assert finished.out == (
            f"NODE{pad}  ASKED  STATUS  CORDONED  LEASE  OVER IN\n"
            f"{node}  -      -       no        -            -\n"
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
            f"leasectl: {node}: its Lease would have a name of {249 + len(node)} characters, and "
            "253 may be; give a shorter --lease-name, here and of leasectl maintenance reconcile\n"
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
        }

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
        line = f"nobody does it: no leasectl maintenance reconcile leads in {namespace.name}\n"
        assert maintenance(*options).err == f"leasectl: {line}"
        assert maintenance(*options, node, "--json").err == f"leasectl: {line}"
        self.lead(cluster)
        assert maintenance(*options).err == ""
