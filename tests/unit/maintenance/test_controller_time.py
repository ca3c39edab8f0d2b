"""The controller and time: clocks that jump, and a lead that is about to end."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.leadership import LEASE_NAME, TTL_SECONDS
from leasectl.maintenance.objects import Json
from leasectl.system.clock import Clock
from tests.kit.support import ManualClock
from tests.unit.maintenance.fake_cluster import FakeCluster
from tests.unit.maintenance.test_controller import NODE, Replica, World, pod

pytestmark = pytest.mark.once


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.add_node(NODE)
    return world


def refuse_to_renew(world: World) -> None:
    """Have the server answer all but who writes the Lease of leaders."""
    write_lease = world.cluster.write_lease

    def refused(name: str, read: Json | None, lease: Lease, *, node: str = "") -> Json | None:
        if name == LEASE_NAME:
            raise BackendUnreachable("it is away")
        return write_lease(name, read, lease, node=node)

    world.cluster.write_lease = refused  # type: ignore[method-assign]


def test_a_wall_clock_that_jumps_ahead_is_noticed_soon(world: World) -> None:
    world.cluster.ask_for(NODE, "10m")
    world.until(lambda: world.cluster.status(NODE) == "active")
    elapsed = world.now
    world.clock._wall += 700.0
    world.until(lambda: world.cluster.status(NODE) == "ended", within=15)
    assert world.now - elapsed <= 11


def test_a_leader_begins_nothing_that_it_could_not_see_done(world: World) -> None:
    world.during(1)
    refuse_to_renew(world)
    world.during(TTL_SECONDS - 5)
    assert world.replicas[0].leadership.has_seconds(0)
    world.cluster.ask_for(NODE, "10m")
    world.during(30)
    assert world.cluster.status(NODE) == ""
    assert NODE not in world.cluster.leases


def test_the_second_write_is_not_begun_either_if_the_first_took_too_long(world: World) -> None:
    world.during(1)
    refuse_to_renew(world)
    write_lease = world.cluster.write_lease

    def slow(name: str, read: Json | None, lease: Lease, *, node: str = "") -> Json | None:
        written = write_lease(name, read, lease, node=node)
        world.clock.advance(TTL_SECONDS)
        return written

    world.cluster.write_lease = slow  # type: ignore[method-assign]
    written: list[NodeWrite] = []
    write_node = world.cluster.write_node

    def noted(read: Json, write: NodeWrite) -> bool:
        written.append(write)
        return write_node(read, write)

    world.cluster.write_node = noted  # type: ignore[method-assign]
    world.cluster.ask_for(NODE, "10m")
    world.during(30)
    assert NODE in world.cluster.leases
    assert written == []


def test_a_second_maintenance_is_drained_anew(world: World) -> None:
    world.cluster.ask_for(NODE, "10m")
    world.until(lambda: world.cluster.status(NODE) == "active")
    world.cluster.ask_for(NODE, None)
    world.until(lambda: world.cluster.status(NODE) == "ended")
    world.cluster.running[NODE] = [pod("late")]
    world.cluster.ask_for(NODE, "10m")
    world.until(lambda: world.cluster.status(NODE) == "active", within=60)
    assert world.cluster.evicted == ["default/late"]


def refused(name: str) -> Json | None:
    raise BackendUnreachable("it may not")


def drain_in_vain(world: World) -> None:
    """Have a pod that no budget ever lets go, and a drain that asks for it again and again."""
    world.cluster.running[NODE] = [pod("a")]
    world.cluster.held = {"a"}
    world.cluster.ask_for(NODE, "2m")
    world.until(lambda: "disruption budget" in world.cluster.status(NODE), within=30)


def test_who_leads_no_more_evicts_nothing(world: World) -> None:
    drain_in_vain(world)
    refuse_to_renew(world)
    world.during(TTL_SECONDS)
    world.cluster.requests.clear()
    world.during(30)
    assert "evict" not in world.cluster.requests


def test_a_drain_ends_in_time_also_where_the_node_cannot_be_looked_at(world: World) -> None:
    drain_in_vain(world)
    world.cluster.node = refused  # type: ignore[method-assign]
    world.during(125)
    world.cluster.requests.clear()
    world.during(30)
    assert "evict" not in world.cluster.requests


class Wire:
    """The way of one replica to the cluster, which can be cut."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.is_cut = False
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        if self.is_cut:
            raise BackendUnreachable("the API is away")
        return getattr(self._cluster, name)


class Pair:
    """Two replicas, of which the first leads and can be cut off."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = Wire(world.cluster)
        self.first = Replica(self.wire, world.clock, "a")  # type: ignore[arg-type]
        self.second = world.replica("b")
        world.replicas = [self.first, self.second]
        world.during(1)
        assert self.first.leadership.has_seconds(0)

    def cut_off_the_first(self) -> None:
        """Have the other lead, and nobody tell the first of anything."""
        self.wire.is_cut = True
        self.first.changes.names.clear()
        self.world.replicas = [self.second]
        self.world.until(lambda: self.second.leadership.has_seconds(0), within=30)

    def bring_back_the_first(self) -> None:
        """Have the other end in good order, so that the first doesn't even see that it led."""
        self.second.leadership.resign()
        self.wire.is_cut = False
        self.first.changes.names.clear()
        self.world.replicas = [self.first]
        self.world.cluster.requests.clear()


def test_whoever_leads_again_evicts_nothing_of_what_another_has_ended_meanwhile(
    world: World,
) -> None:
    pair, cluster = Pair(world), world.cluster
    drain_in_vain(world)
    pair.cut_off_the_first()
    cluster.ask_for(NODE, None)
    world.until(lambda: cluster.status(NODE) == "ended")
    cluster.held.clear()
    cluster.node = refused  # type: ignore[method-assign]  # it doesn't get to see that
    pair.bring_back_the_first()
    world.during(30)
    assert pair.first.leadership.has_seconds(0)
    assert cluster.evicted == []


def test_what_was_drained_in_one_window_is_not_taken_for_drained_in_the_next(world: World) -> None:
    pair, cluster = Pair(world), world.cluster
    cluster.running[NODE] = [pod("a")]
    cluster.held = {"a"}
    cluster.ask_for(NODE, "10m")
    world.until(lambda: "disruption budget" in cluster.status(NODE))
    # The pod has gone, which it gets to know, and can note at no node.
    cluster.running[NODE] = []
    node, cluster.node = cluster.node, refused  # type: ignore[method-assign]
    world.during(6)
    cluster.node = node  # type: ignore[method-assign]
    pair.cut_off_the_first()
    cluster.ask_for(NODE, None)
    world.until(lambda: cluster.status(NODE) == "ended")
    cluster.running[NODE] = [pod("b")]
    cluster.held = {"b"}
    cluster.ask_for(NODE, "10m")
    world.until(lambda: "default/b" in cluster.status(NODE))
    pair.bring_back_the_first()
    world.during(30)
    assert pair.first.leadership.has_seconds(0)
    assert "default/b" in cluster.status(NODE)
    cluster.held.clear()
    world.until(lambda: cluster.status(NODE) == "active", within=20)


def test_whose_lease_is_given_away_by_hand_leads_no_more_when_another_has_taken_it(
    world: World,
) -> None:
    world.during(1)
    first, second = world.replicas[0].leadership, world.replica("b").leadership
    lease = world.cluster.lease

    def emptied_and_taken(name: str) -> Json | None:
        read = lease(name)
        world.cluster.lease = lease  # type: ignore[method-assign]
        world.cluster.put_lease(LEASE_NAME)
        second.turn()
        return read

    world.cluster.lease = emptied_and_taken  # type: ignore[method-assign]
    first.turn()
    assert second.has_seconds(5)
    assert not first.has_seconds(0)


class Elsewhere(ManualClock):
    """The clocks of another host: that which dates is some time away from ours."""

    def __init__(self, ours: ManualClock, ahead_seconds: float) -> None:
        super().__init__()
        clock = ours.clock
        self.clock = Clock(clock.elapsed, lambda: clock.wall() + ahead_seconds)


@pytest.mark.parametrize("ahead_seconds", [300.0, -300.0, 86400.0])
def test_a_replica_by_whose_clock_it_is_another_time_ends_by_that(
    world: World, ahead_seconds: float
) -> None:
    cluster = world.cluster
    world.cluster.ask_for(NODE, "10m")
    world.until(lambda: cluster.status(NODE) == "active")
    began = world.now
    there = Replica(cluster, Elsewhere(world.clock, ahead_seconds), "b")
    world.replicas.append(there)
    world.during(60)
    assert not there.leadership.has_seconds(0)  # whoever leads is no matter of dates
    world.replicas = [there]
    world.until(lambda: cluster.status(NODE) == "ended", within=1000)
    over_at = began + 600 - ahead_seconds
    assert world.now == pytest.approx(max(over_at, began + 60), abs=TTL_SECONDS + 12)
    assert not (cluster.is_cordoned(NODE) or cluster.is_marked(NODE) or cluster.requested(NODE))
    assert "leaseDurationSeconds" not in cluster.leases[NODE]["spec"]


class TestANodeThatIsMadeAnew:
    def make_anew(self, world: World) -> None:
        """Have its kubelet register it once more, and whoever runs now hear of nothing else."""
        world.cluster.add_node(NODE, uid="another")

    @pytest.fixture
    def world(self, world: World) -> World:
        world.cluster.running[NODE] = [pod("a")]
        world.cluster.held = {"a"}
        world.cluster.ask_for(NODE, "10m")
        world.until(lambda: "disruption budget" in world.cluster.status(NODE))
        return world

    def test_is_neither_cordoned_nor_drained_and_its_lease_is_given_back(
        self, world: World
    ) -> None:
        self.make_anew(world)
        world.cluster.running[NODE] = [pod("b")]
        world.during(30)
        assert world.cluster.evicted == []
        assert not world.cluster.is_cordoned(NODE)
        assert world.cluster.status(NODE) == ""  # nothing has begun there
        assert "leaseDurationSeconds" not in world.cluster.leases[NODE]["spec"]

    def test_is_drained_anew_if_it_asks_for_it(self, world: World) -> None:
        self.make_anew(world)
        world.cluster.running[NODE] = [pod("b")]
        world.cluster.ask_for(NODE, "20m")
        world.until(lambda: world.cluster.status(NODE) == "active", within=20)
        assert world.cluster.evicted == ["default/b"]
        (owner,) = world.cluster.leases[NODE]["metadata"]["ownerReferences"]
        assert owner["uid"] == "another"
        assert any(f"{NODE}: new, stale" in each for each in world.replicas[0].said)


def test_a_node_that_goes_in_the_middle_of_its_drain_is_drained_no_more(world: World) -> None:
    drain_in_vain(world)
    del world.cluster.nodes[NODE]
    world.replicas[0].changes.names.add(NODE)
    world.during(1)
    world.cluster.requests.clear()
    world.during(150)
    assert set(world.cluster.requests) == {"lease", "write lease"}  # of the lead alone
