"""What the controller does next, and until when it sleeps: by the second."""

from __future__ import annotations

import math
from typing import Any

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.api_cluster import Evicted
from leasectl.maintenance.controller import Controller, Settings
from leasectl.maintenance.drain import DrainOptions
from leasectl.maintenance.facts import NodeWrite, Us
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import BEGUN_BY, Json, Pod
from leasectl.system.clock import rfc3339
from leasectl.system.poll import Sleep
from tests.kit.support import ManualClock
from tests.unit.maintenance.fake_cluster import FakeCluster

pytestmark = pytest.mark.once

US = "machine-remediation"
NODE = "worker-1"


class Lead:
    """A lead that a test gives and takes."""

    def __init__(self, clock: ManualClock) -> None:
        self.due_at = math.inf
        self.leader = "us"
        self.reign = 1
        self.left = 100.0
        self.turns = 0
        self.error: BackendUnreachable | None = None
        self._clock = clock

    def has_seconds(self, seconds: float) -> bool:
        return self.left >= seconds

    def turn(self) -> None:
        self.turns += 1
        self.due_at = self._clock.clock.elapsed() + 4.0
        if self.error is not None:
            raise self.error


class Turns:
    """One controller, turn by turn."""

    def __init__(self, **options: object) -> None:
        self.cluster = FakeCluster()
        self.time = ManualClock()
        self.lead = Lead(self.time)
        self.said: list[str] = []
        self.lease_writes = 0
        self.changes = self.cluster.watch()
        leadership: Any = self.lead
        settings = Settings(Us(US), drain=DrainOptions(**options))  # type: ignore[arg-type]
        self.going = Controller(
            self.cluster,
            self.changes,
            settings,
            leadership,
            clock=self.time.clock,
            say=self.said.append,
            warn=lambda line: self.said.append(f"warning: {line}"),
        ).run()

    @property
    def now(self) -> float:
        return self.time.clock.elapsed()

    def turn(self) -> list[str]:
        """Go on to the next sleep; returns what was asked for before."""
        self.cluster.requests.clear()
        self.slept: Sleep = next(self.going)
        self.lease_writes += self.cluster.requests.count("write lease")
        return list(self.cluster.requests)

    def rest(self) -> float | None:
        """Go on until there is nothing to do at once; returns for how long it sleeps then."""
        for _ in range(1000):
            self.turn()
            if self.changes.names:
                continue
            if self.slept.until is None or self.slept.until > self.now:
                return None if self.slept.until is None else self.slept.until - self.now
        raise AssertionError("it never rests")

    def sleep(self) -> None:
        assert self.slept.until is not None
        self.time.advance(max(0.0, self.slept.until - self.now))

    def begin(self, *pods: Pod, text: str = "10m", name: str = NODE) -> None:
        """Have a node that asks for maintenance."""
        self.cluster.add_node(name)
        self.cluster.running[name] = list(pods)
        self.cluster.ask_for(name, text)

    def refuse(self, request: str, error: str = "it may not") -> None:
        def refused(*args: object, **options: object) -> Any:
            self.cluster.requests.append(request)
            raise BackendUnreachable(error)

        setattr(self.cluster, request.replace(" ", "_"), refused)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def pod(name: str, **facts: bool) -> Pod:
    return Pod("default", name, f"uid-{name}", **facts)


class TestSleeps:
    def test_who_does_not_lead_sleeps_for_the_lead_alone(self, turns: Turns) -> None:
        turns.begin()
        turns.lead.left = 4.9
        assert turns.turn() == []
        assert turns.slept.until == math.inf
        turns.lead.due_at = turns.now + 0.5
        assert turns.turn() == []
        assert turns.slept.until == turns.now + 0.5
        turns.lead.left = 5.0
        assert turns.turn() == ["node", "lease", "write lease", "write node"]

    def test_a_drain_whose_time_is_over_wakes_nobody(self, turns: Turns) -> None:
        turns.begin(pod("a"), text="2s")
        turns.cluster.held = {"a"}
        turns.rest()
        turns.refuse("node")
        for _ in range(20):
            turns.sleep()
            turns.rest()
        assert turns.slept.until is not None
        assert turns.slept.until - turns.now > 1.0  # it waits for the next try to look alone


class TestTheLead:
    def test_is_looked_at_when_it_changes_and_is_anothers(self, turns: Turns) -> None:
        turns.rest()
        turns.changes.names.add(LEASE_NAME)
        turns.rest()
        assert turns.lead.turns == 0  # it renews it when that is due
        turns.lead.left = 0.0
        turns.changes.names.add(LEASE_NAME)
        turns.turn()
        assert turns.lead.turns == 0
        turns.lead.left = -1.0
        turns.changes.names.add(LEASE_NAME)
        turns.turn()
        assert turns.lead.turns == 1

    def test_that_was_lost_in_between_has_drains_begin_anew(self, turns: Turns) -> None:
        turns.begin(pod("a"), text="1h")
        turns.cluster.answers["a"] = Evicted("held", "for long", 600.0)
        turns.rest()
        for _ in range(20):
            turns.sleep()
            turns.rest()
        assert turns.cluster.status(NODE) == "draining: default/a (for long)"
        turns.cluster.requests.clear()
        turns.lead.due_at = turns.now
        turns.rest()
        assert "evict" not in turns.cluster.requests
        turns.lead.reign, turns.lead.due_at = 2, turns.now
        asked = []
        for _ in range(10):
            asked += turns.turn()
            turns.sleep()
        assert "evict" in asked


class TestTurns:
    def test_looks_and_drains_take_turns(self, turns: Turns) -> None:
        turns.begin(*(pod(f"p-{number}") for number in range(9)))
        while "pods" not in turns.turn():
            pass
        for number in range(5):
            turns.begin(name=f"other-{number}")
        kinds = ["drain" if turns.turn() == ["evict"] else "look" for _ in range(8)]
        assert kinds[0:8:2] == ["look"] * 4
        assert kinds[1:8:2] == ["drain"] * 4

    def test_a_drain_that_was_begun_goes_before_the_next(self, turns: Turns) -> None:
        for name in ("a", "b"):
            turns.begin(*(pod(f"{name}-{n}") for n in range(3)), name=name)
        turns.rest()
        evicted = [each.removeprefix("default/")[0] for each in turns.cluster.evicted]
        assert evicted in (list("aaabbb"), list("bbbaaa"))


class TestFailures:
    def test_a_node_is_looked_at_again_ever_more_seldom(self, turns: Turns) -> None:
        turns.begin()
        turns.refuse("node")
        pauses = []
        for _ in range(30):
            pause = turns.rest()
            assert pause is not None
            pauses.append(pause)
            turns.sleep()
        assert 0.05 <= pauses[0] <= 0.1
        assert 0.1 <= pauses[1] <= 0.2
        assert all(1.5 <= each <= 3.0 for each in pauses[8:])
        del turns.cluster.node
        assert turns.rest() == 10.0
        turns.refuse("node")
        turns.sleep()
        pause = turns.rest()
        assert pause is not None
        assert pause <= 0.1  # what has succeeded once begins anew

    def test_after_a_step_it_is_looked_again_at_once_also_if_nobody_says_that_it_was_done(
        self, turns: Turns
    ) -> None:
        turns.begin()
        turns.turn()
        turns.changes.names.clear()
        assert turns.slept.until == turns.now
        assert "node" in turns.turn()

    def test_a_lease_is_not_written_without_a_pause_where_the_node_cannot_be(
        self, turns: Turns
    ) -> None:
        turns.refuse("write node")
        turns.begin()
        for writes in range(1, 5):
            assert turns.rest() is not None
            # Its watch tells of the Lease, which it has written itself.
            turns.changes.names.add(NODE)
            turns.rest()
            assert turns.lease_writes == writes
            turns.sleep()

    def test_a_write_that_is_too_late_is_followed_by_another_look(self, turns: Turns) -> None:
        turns.begin()
        write_node, refused = turns.cluster.write_node, list[NodeWrite]()

        def too_late(read: Json, write: NodeWrite) -> bool:
            if not refused:
                refused.append(write)
                turns.changes.names.clear()  # nobody hears of what it has written before
                return False
            return write_node(read, write)

        turns.cluster.write_node = too_late  # type: ignore[method-assign]
        pause = turns.rest()
        assert pause is not None
        assert pause <= 0.1
        assert turns.said == []
        turns.sleep()
        turns.rest()
        assert turns.cluster.status(NODE) == "active"

    def test_a_lease_that_another_has_written_is_not_followed_by_the_node(
        self, turns: Turns
    ) -> None:
        turns.begin()
        turns.cluster.write_lease = lambda *args, **options: None  # type: ignore[method-assign]
        turns.rest()
        assert turns.cluster.status(NODE) == ""

    def test_a_node_that_is_gone_is_forgotten(self, turns: Turns) -> None:
        turns.begin(pod("a"), text="15s")
        turns.cluster.held = {"a"}
        turns.rest()
        del turns.cluster.nodes[NODE]
        turns.changes.names.add(NODE)
        assert turns.turn() == ["node"]
        assert turns.rest() == math.inf
        turns.time.advance(100.0)
        assert turns.turn() == []

    def test_the_same_trouble_is_said_once_a_minute(self, turns: Turns) -> None:
        turns.begin(text="1h")
        turns.refuse("node")
        began = turns.now
        times = []
        while turns.now < began + 150:
            turns.said.clear()
            turns.rest()
            times += [turns.now - began for each in turns.said if "it may not" in each]
            turns.sleep()
        assert len(times) == 3
        assert times[0] == 0.0
        assert 60.0 <= times[1] < 63.0
        turns.refuse("node", "it may not at all")
        turns.said.clear()
        turns.rest()
        assert turns.said == ["warning: it may not at all; trying again"]

    def test_of_a_server_that_is_away_nothing_else_is_said(self, turns: Turns) -> None:
        turns.begin()
        turns.lead.error = BackendUnreachable("it is away")
        turns.lead.due_at = turns.now
        turns.turn()
        turns.refuse("node", "no answer of another kind")
        turns.changes.names.add(NODE)
        turns.turn()
        assert turns.said == ["warning: it is away; trying again"]
        turns.lead.error = None
        turns.lead.due_at = turns.now
        turns.turn()
        assert turns.said[1:] == ["warning: the server answers again", "leading"]
        turns.changes.names.add(NODE)
        turns.turn()
        assert turns.said[3:] == ["warning: no answer of another kind; trying again"]

    def test_a_server_that_is_away_again_is_said_again(self, turns: Turns) -> None:
        for error in (BackendUnreachable("it is away"), None) * 2:
            turns.lead.error, turns.lead.due_at = error, turns.now
            turns.turn()
        assert turns.said.count("warning: it is away; trying again") == 2


class TestDrains:
    def test_one_lasts_until_its_time_is_over_and_no_longer(self, turns: Turns) -> None:
        turns.begin(pod("a"), text="20s")
        turns.cluster.held = {"a"}
        turns.rest()
        node, began = turns.cluster.node, turns.now
        turns.refuse("node")
        listed: list[float] = []
        while turns.now < began + 40:
            turns.cluster.requests.clear()
            turns.slept = next(turns.going)
            listed += [turns.now - began for each in turns.cluster.requests if each == "pods"]
            turns.time.advance(0.5)
        assert 17.0 <= max(listed) < 20.0
        turns.cluster.node = node  # type: ignore[method-assign]

    def test_its_time_limit_counts_from_when_the_lease_was_acquired(self) -> None:
        turns = Turns(timeout_seconds=30.0)
        turns.begin(pod("a"))
        turns.cluster.held = {"a"}
        acquired = rfc3339(turns.time.clock.wall() - 20.0)
        turns.cluster.put_lease(
            NODE, holderIdentity=US, leaseDurationSeconds=630, acquireTime=acquired
        )
        turns.cluster.nodes[NODE]["metadata"]["annotations"][BEGUN_BY] = US
        uid = f"uid-{NODE}"
        turns.cluster.leases[NODE]["metadata"]["ownerReferences"] = [{"kind": "Node", "uid": uid}]
        turns.rest()
        began = turns.now
        while "stopped evicting" not in turns.cluster.status(NODE):
            turns.sleep()
            turns.rest()
        assert 10.0 <= turns.now - began <= 12.0

    def test_one_that_fails_is_said_and_goes_on(self, turns: Turns) -> None:
        turns.begin(pod("a"))
        turns.refuse("pods", "no answer")
        assert turns.rest() == 2.0
        assert turns.said[-1] == "warning: no answer; trying again"
        del turns.cluster.pods
        turns.sleep()
        turns.rest()
        assert turns.cluster.evicted == ["default/a"]
