"""Nodes under maintenance, while their controllers are killed; and what would be seen as wrong."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from leasectl.maintenance.facts import Node
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import (
    CORDON_MARK,
    REQUEST,
    STATUS,
    parse_lease,
    parse_node,
)
from leasectl.system.clock import rfc3339
from leasectl.system.poll import is_readable
from tests.crash.maintenance_campaign import Size, campaign
from tests.crash.maintenance_history import MaintenanceHistory
from tests.crash.maintenance_judge import (
    THEM,
    US,
    Eviction,
    Happened,
    judge_evictions,
    judge_node,
)
from tests.crash.sweeping import kill_at_request
from tests.kit.forking import ending, fork, leasectl
from tests.kit.killing import EVERY_KILL, FULL_SIZE, each_answer_lost
from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, end_pods, make_node, make_pod
from tests.kit.relay import Relay
from tests.kit.waits import PATIENCE_SECONDS

_MERGE = "application/merge-patch+json"
SHORT = Size(nodes=5, seconds=6.0, at_least=4, killed_every_seconds=(0.5, 1.5), away_seconds=0.0)
SIZE = Size() if FULL_SIZE else SHORT


def test_each_node_ends_as_it_was_and_none_is_drained_by_two(
    namespace: Namespace, tmp_path: Path
) -> None:
    report = campaign(namespace, tmp_path, SIZE)
    print(report.counts)
    assert report.violations == []
    assert report.counts["killed"] >= 1
    assert report.counts["windows"] >= SIZE.at_least


def node(status: str, *, cordoned: bool = False, mark: str = "", asked: bool = False) -> Happened:
    annotations = {STATUS: status, CORDON_MARK: mark, **({REQUEST: "1m"} if asked else {})}
    spec = {"unschedulable": True} if cordoned else {}
    said = {"metadata": {"uid": "u", "annotations": annotations}, "spec": spec}
    return Happened(0, "Node", "n", said)


def lease(holder: str, seconds: int | None, at: float, name: str = "n") -> Happened:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    times = {"acquireTime": rfc3339(at), "renewTime": rfc3339(at)}
    return Happened(0, "Lease", name, {"metadata": {}, "spec": {**spec, **times}})


BEGUN = (lease(US, 90, 100), node("new, create", cordoned=True, mark=US, asked=True))
ENDED = (node("ended"), lease(US, None, 150))


class TestTheJudge:
    """What the campaign would see, had it happened."""

    def test_a_life_as_it_should_be_is_none_of_it(self) -> None:
        seen = judge_node("n", (*BEGUN, *ENDED), by_hand=False)
        assert (seen.violations, seen.windows, seen.cordons) == ([], 2, 1)

    @pytest.mark.parametrize(
        ("history", "violation"),
        [
            ((BEGUN[1],), "without its lease"),
            ((BEGUN[0], node("new", cordoned=True, asked=True)), "without a mark"),
            ((*BEGUN, lease(THEM, 9, 190), ENDED[0]), "in a lease of upgrader's"),
            ((*BEGUN, ENDED[1]), "given back, and it is cordoned"),
            ((*BEGUN, node("ended", asked=True)), "is asked for"),
            ((*BEGUN, node("ended", cordoned=True, mark=US)), "is marked"),
            ((*BEGUN, node("draining: x", cordoned=True, mark=US)), "lost its request"),
            ((lease(THEM, 60, 100), lease(US, 90, 130)), "after 30.0s of another's"),
        ],
    )
    def test_what_may_not_be_is_seen(self, history: tuple[Happened, ...], violation: str) -> None:
        (seen,) = judge_node("n", history, by_hand=False).violations
        assert violation in seen

    def test_whoever_uncordons_what_somebody_else_cordoned_is_seen(self) -> None:
        history = (lease(US, 90, 100), node("draining: x", cordoned=True), node("ended"))
        found = judge_node("n", history, by_hand=True).violations
        assert "n was uncordoned, which somebody else had cordoned" in found

    def test_whoever_evicts_without_leading_is_seen(self) -> None:
        history = (
            lease("host_7_ab", 15, 100, LEASE_NAME),
            lease("host_8_cd", 15, 120, LEASE_NAME),
        )
        good = [Eviction(110, 7, "/a"), Eviction(125, 8, "/b")]
        assert list(judge_evictions(good, history)) == []
        late, early = Eviction(122, 7, "/a"), Eviction(118, 8, "/b")
        assert len(list(judge_evictions([late, early], history))) == 2


class TestKills:
    def test_it_ends_well_whichever_request_a_controller_is_killed_around(
        self, namespace: Namespace, kubeconfig: Path, tmp_path: Path
    ) -> None:
        namespace.account.permit_everywhere(MAINTENANCE_RULES)
        life = Life(namespace, kubeconfig, tmp_path)
        kills = 0
        for number in itertools.count(3, 1 if EVERY_KILL else 37):
            if not life.go(number):
                break
            kills += 1
        print(f"{kills} kills")
        assert kills


class TestLostAnswers:
    def test_it_ends_well_whichever_answer_a_controller_loses(
        self, namespace: Namespace, between_api: Relay, tmp_path: Path
    ) -> None:
        namespace.account.permit_everywhere(MAINTENANCE_RULES)
        through = namespace.account.kubeconfig(tmp_path / "through", server=between_api.endpoint)
        history = MaintenanceHistory(namespace)
        life = Life(namespace, through, tmp_path)
        lives = lost = 0
        for losing in each_answer_lost(between_api, more_than=20, stride=1 if EVERY_KILL else 16):
            losing.begin()
            assert not life.go(0)
            lives += 1
            lost += losing.number <= losing.asked()
        happened = history.upto(life.left())
        history.close()
        seen, windows = judge_node(life.node, happened, by_hand=False), windows_in(happened)
        print(f"{lost} answers lost, {len(windows)} windows, {seen.cordons} cordons")
        assert seen.violations == []
        assert (len(windows), seen.cordons) == (lives, lives)


def windows_in(history: Iterable[Happened]) -> set[float]:
    """When the lease was acquired in which the node was cordoned by us, of each time that it was.

    Acquired without the node having been told, it is taken anew: nothing has begun by then.
    """
    found, acquired_at = set[float](), 0.0
    for each in history:
        if each.kind == "Lease" and each.name != LEASE_NAME:
            acquired_at = parse_lease(each.said).acquired_at or 0.0
        elif each.kind == "Node" and parse_node(each.said).marked_by == US:
            found.add(acquired_at)
    return found


class Life:
    """A node that goes through a whole maintenance, again and again.

    Args:
        namespace: Where its lease is.
        kubeconfig: Of its controllers.
        folder: What they leave is put there.

    Attributes:
        node: Its name.
    """

    def __init__(self, namespace: Namespace, kubeconfig: Path, folder: Path) -> None:
        self._namespace = namespace
        self._api = namespace.administrator
        self._kubeconfig = kubeconfig
        self._folder = folder
        self.node = f"sweep-{namespace.name}"
        self._running = self._pidfd = 0
        make_node(self._api, self.node)

    def left(self) -> list[Object]:
        """The node and its lease, as they are now."""
        node = self._api.ok("GET", f"{NODES}/{self.node}")
        return [node, self._namespace.lease(self.node)]

    def go(self, number: int) -> bool:
        """Have one life, in which a controller is killed; returns whether it was.

        Args:
            number: Twice the number of the request, and one more for after it; 0 for none.
        """
        make_pod(self._namespace, "web", self.node)
        self._start(number)
        was_killed = False
        steps = (("1h", self._is_active), ("2h", self._is_longer), (None, self._is_over))
        for text, condition in steps:
            self._ask_for(text)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not condition():
                assert time.monotonic() < deadline, (text, number)
                end_pods(self._namespace)
                if is_readable(self._pidfd, 0.05):  # it has ended
                    was_killed = True
                    self._end()
                    self._start(0)
        self._end()
        return was_killed

    def _start(self, number: int) -> None:
        """Start a controller, to be killed around a request; 0: not at all."""

        def work() -> None:
            if number:
                kill_at_request(number // 2, after=bool(number % 2))
            os.environ["LEASECTL_KUBECONFIG"] = str(self._kubeconfig)
            arguments = ("--backend", "kubernetes://", "--lease-namespace", self._namespace.name)
            output = self._folder / "output"
            leasectl(self._folder / "state", output, "maintenance", "reconcile", *arguments)

        self._running = fork(work)
        self._pidfd = os.pidfd_open(self._running)

    def _end(self) -> None:
        """End the controller, and its lead, which would otherwise go on for a while."""
        os.close(self._pidfd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._running, signal.SIGKILL)
        assert ending(self._running) == -signal.SIGKILL
        self._api("DELETE", f"{self._namespace.leases}/{LEASE_NAME}")

    def _ask_for(self, text: str | None) -> None:
        patch = {"metadata": {"annotations": {REQUEST: text}}}
        self._api.ok("PATCH", f"{NODES}/{self.node}", patch, content_type=_MERGE)

    def _shown(self) -> Node:
        return parse_node(self._api.ok("GET", f"{NODES}/{self.node}"))

    def _duration(self) -> int:
        return parse_lease(self._namespace.lease(self.node)).duration_seconds

    def _is_active(self) -> bool:
        node = self._shown()
        assert not node.is_unschedulable or node.marked_by == US
        return node.status == "active" and node.is_unschedulable

    def _is_longer(self) -> bool:
        return self._is_active() and self._duration() == 7230

    def _is_over(self) -> bool:
        node = self._shown()
        is_over = node.status == "ended" and not (node.is_unschedulable or node.marked_by)
        return is_over and self._duration() == 0
