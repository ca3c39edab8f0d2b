"""The controller, on a cluster in memory and a clock that a test moves, and clocks that jump."""

from __future__ import annotations

from typing import Callable

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.controller import Controller, Reconciling, Settings
from leasectl.maintenance.drain import DrainOptions
from leasectl.maintenance.facts import Lease, NodeWrite, Us
from leasectl.maintenance.leadership import LEASE_NAME, TTL_SECONDS, Leadership
from leasectl.maintenance.objects import Json, Pod, name_of, parse_time
from leasectl.system.clock import Clock
from tests.kit.support import ManualClock
from tests.unit.maintenance.fake_cluster import FakeCluster

pytestmark = pytest.mark.once


IDENTITY = "machine-remediation"


NODE = "worker-1"


class Killed(BaseException):
    """The process is no more."""


class Replica:
    """One controller, and what it has said."""

    def __init__(
        self,
        cluster: FakeCluster,
        clock: ManualClock,
        name: str = "a",
        identity: str = IDENTITY,
        lease_name: str = "{node}",
        **drain: object,
    ) -> None:
        self.said: list[str] = []
        self.told: list[tuple[float, str]] = []
        settings = Settings(Us(identity), lease_name, DrainOptions(**drain))  # type: ignore[arg-type]
        self.leadership = Leadership(cluster, name, clock.clock)
        self.changes = cluster.watch()
        self._run: Reconciling = Controller(
            cluster,
            self.changes,
            settings,
            self.leadership,
            clock=clock.clock,
            say=self._note,
            warn=self._note,
        ).run()
        self._clock = clock
        self.sleeps_until: float | None = 0.0
        self.sleeps = 0
        self._has_begun = False

    def _note(self, line: str) -> None:
        self.said.append(line)
        self.told.append((self._clock.clock.wall(), line))

    def go(self) -> None:
        """Go on until it sleeps for longer than no time."""
        while True:
            sleep = self._run.send(set()) if self._has_begun else next(self._run)
            self._has_begun = True
            self.sleeps += 1
            self.sleeps_until = sleep.until
            if sleep.until is None or sleep.until > self._clock.clock.elapsed():
                return


class World:
    """A cluster with one controller at a time, or several, and the time there."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.clock = ManualClock()
        self.replicas = [self.replica()]

    def replica(self, name: str = "a", **drain: object) -> Replica:
        return Replica(self.cluster, self.clock, name, **drain)  # type: ignore[arg-type]

    @property
    def now(self) -> float:
        return self.clock.clock.elapsed()

    def until(self, condition: Callable[[], bool], *, within: float = 600.0) -> None:
        """Let time go by until something is so."""
        end = self.now + within
        while not condition():
            assert self.now < end, [each.said for each in self.replicas]
            self.step(end)

    def during(self, seconds: float) -> None:
        """Let some time go by."""
        end = self.now + seconds
        while self.now < end:
            self.step(end)

    def step(self, end: float) -> None:
        for replica in self.replicas:
            replica.go()
        if not any(each.changes.names - {""} for each in self.replicas):
            until = [e.sleeps_until for e in self.replicas if e.sleeps_until is not None]
            self.clock.advance(max(0.01, min([*until, end]) - self.now))


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.add_node(NODE)
    return world


def pod(name: str, **facts: bool) -> Pod:
    return Pod("default", name, f"uid-{name}", **facts)


class TestLife:
    def test_a_node_is_cordoned_drained_and_uncordoned_at_the_end(self, world: World) -> None:
        cluster = world.cluster
        cluster.running[NODE] = [pod("web"), pod("agent", is_of_node=True)]
        cluster.ask_for(NODE, "10m")
        world.until(lambda: cluster.status(NODE) == "active", within=10)
        began = world.now
        assert cluster.evicted == ["default/web"]
        assert cluster.is_cordoned(NODE)
        assert cluster.is_marked(NODE)
        spec = cluster.leases[NODE]["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (IDENTITY, 630)
        assert cluster.leases[NODE]["metadata"]["ownerReferences"][0]["uid"] == f"uid-{NODE}"
        world.until(lambda: cluster.status(NODE) == "ended")
        assert 590 < world.now - began <= 601
        assert not (cluster.is_cordoned(NODE) or cluster.is_marked(NODE))
        assert not cluster.requested(NODE)
        assert "leaseDurationSeconds" not in cluster.leases[NODE]["spec"]

    def test_who_asks_for_what_no_lease_can_be_called_after_is_told(self, world: World) -> None:
        world.replicas = [world.replica(lease_name="x" * 250 + "{node}")]
        world.cluster.ask_for(NODE, "10m")
        world.until(lambda: world.cluster.status(NODE) == "invalid", within=5)
        assert not world.cluster.is_cordoned(NODE)
        said = world.replicas[0].said[1:]
        assert said == [
            f"{NODE}: invalid (the request can't be read)",
            f"{NODE}: the name of its Lease would have 258 characters; at most 253 are allowed; "
            "use a shorter --lease-name",
        ]
        world.during(60)
        assert world.replicas[0].said[1:] == said
        world.cluster.ask_for(NODE, None)
        world.until(lambda: world.cluster.status(NODE) == "", within=5)

    @pytest.mark.parametrize("text", ["10m", "soon"])
    def test_a_request_that_never_began_has_not_ended(self, world: World, text: str) -> None:
        cluster = world.cluster
        cluster.put_lease(NODE, holderIdentity="upgrader", leaseDurationSeconds=600)
        cluster.ask_for(NODE, text)
        world.until(lambda: cluster.status(NODE) in ("waiting", "invalid"), within=5)
        cluster.ask_for(NODE, None)
        world.until(lambda: cluster.status(NODE) == "", within=5)
        line = f"{NODE}: no status (the request was cancelled)"
        assert world.replicas[0].said[-1] == line

    def test_it_waits_for_another_and_takes_over_when_that_is_unchanged_for_long_enough(
        self, world: World
    ) -> None:
        # Its times are of a clock that is years away.
        world.cluster.put_lease(
            NODE,
            holderIdentity="upgrader",
            leaseDurationSeconds=60,
            acquireTime="2001-01-01T00:00:00.000000Z",
            renewTime="2001-01-01T00:00:00.000000Z",
            leaseTransitions=3,
        )
        world.cluster.ask_for(NODE, "10m")
        world.until(lambda: world.cluster.status(NODE) == "waiting", within=5)
        world.during(50)
        world.cluster.leases[NODE]["spec"]["renewTime"] = "2001-01-01T00:00:01.000000Z"
        world.during(55)
        assert world.cluster.status(NODE) == "waiting"
        assert not world.cluster.is_cordoned(NODE)
        world.until(lambda: world.cluster.status(NODE) == "active", within=20)
        assert world.cluster.leases[NODE]["spec"]["leaseTransitions"] == 4

    @pytest.mark.parametrize("duration", ["5s", "10m"])
    @pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", ""), ("", "b")])
    def test_a_repeated_request_gets_its_full_time_although_nobody_saw_the_first_one_end(
        self, world: World, first: str, second: str, duration: str
    ) -> None:
        cluster = world.cluster
        cluster.ask_for(NODE, "5s", first)
        world.until(lambda: cluster.status(NODE) == "active", within=5)
        world.replicas = []
        world.during(37)
        cluster.ask_for(NODE, None)
        cluster.ask_for(NODE, duration, second)
        asked_at = world.clock.clock.wall()
        repeated = world.replica("b")
        world.replicas = [repeated]

        def acquired_at() -> float:
            return parse_time(cluster.leases[NODE]["spec"]["acquireTime"]) or 0.0

        world.until(lambda: acquired_at() >= asked_at, within=30)
        world.until(lambda: cluster.status(NODE) == "active", within=3)
        began = acquired_at()
        assert any(each.startswith(f"{NODE}: new, stale") for each in repeated.said)
        world.until(lambda: cluster.status(NODE) == "ended", within=700)
        over = began + (5 if duration == "5s" else 600)
        assert over <= world.clock.clock.wall() <= over + 1
        assert not (cluster.is_cordoned(NODE) or cluster.is_marked(NODE))

    @pytest.mark.parametrize("after", [0.0, 60.0])
    def test_a_repeated_request_gets_its_full_time_after_a_cancellation_that_nobody_saw(
        self, world: World, after: float
    ) -> None:
        cluster = world.cluster
        cluster.running[NODE] = [pod("web")]
        cluster.ask_for(NODE, "10m", "a")
        world.until(lambda: cluster.status(NODE) == "active", within=5)
        world.during(after)
        cluster.running[NODE] = [pod("late")]
        asked_at = world.now
        cluster.ask_for(NODE, None)
        cluster.ask_for(NODE, "10m", "b")
        world.until(lambda: "default/late" in cluster.evicted, within=5)
        world.until(lambda: cluster.status(NODE) == "active", within=5)
        world.until(lambda: cluster.status(NODE) == "ended")
        assert 600 <= world.now - asked_at <= 602

    def test_nobody_is_asked_while_nothing_is_to_be_done(self, world: World) -> None:
        world.during(30)
        world.cluster.requests.clear()
        world.during(60)
        # Its own lease alone, each four seconds.
        assert set(world.cluster.requests) == {"lease", "write lease"}
        assert len(world.cluster.requests) <= 2 * 16


class TestDrain:
    def test_a_budget_that_never_allows_it_holds_up_no_end(self, world: World) -> None:
        world.cluster.running[NODE] = [pod("a")]
        world.cluster.held = {"a"}
        world.cluster.ask_for(NODE, "2m")
        world.until(lambda: world.cluster.status(NODE).startswith("draining"))
        world.until(lambda: world.cluster.status(NODE) == "ended", within=125)
        world.cluster.requests.clear()
        world.during(60)
        assert "evict" not in world.cluster.requests


class TestReplicas:
    def test_one_leads_and_the_other_takes_over_when_it_is_gone(self, world: World) -> None:
        first, second = world.replicas[0], world.replica("b")
        world.replicas.append(second)
        world.cluster.ask_for(NODE, "10m")
        world.until(lambda: world.cluster.status(NODE) == "active")
        assert first.leadership.has_seconds(5)
        assert not second.leadership.has_seconds(0)
        assert second.said == ["standing by; a leads"]
        world.replicas = [second]
        world.until(lambda: second.leadership.has_seconds(5), within=TTL_SECONDS + 5)
        world.until(lambda: world.cluster.status(NODE) == "ended")


class TestSignals:
    def test_one_is_heard_between_any_two_requests_however_much_there_is_to_do(
        self, world: World
    ) -> None:
        for number in range(5):
            name = f"busy-{number}"
            world.cluster.add_node(name)
            world.cluster.running[name] = [pod(f"{name}-{each}") for each in range(5)]
            world.cluster.ask_for(name, "20m")
        replica, between = world.replicas[0], [0]
        # A look is two requests and two writes, and all else is less.
        world.cluster.each_request = lambda: between.append(replica.sleeps)
        world.until(lambda: len(world.cluster.evicted) == 25)
        assert max(between.count(each) for each in between) <= 4


class TestTrouble:
    def test_what_fails_at_one_node_is_said_and_keeps_no_other_waiting(self, world: World) -> None:
        world.cluster.add_node("bad")
        write_node = world.cluster.write_node

        def refused(read: Json, write: NodeWrite) -> bool:
            if name_of(read) == "bad":
                raise BackendUnreachable("it may not")
            return write_node(read, write)

        world.cluster.write_node = refused  # type: ignore[method-assign]
        world.cluster.ask_for("bad", "1h")
        world.cluster.ask_for(NODE, "1h")
        world.until(lambda: world.cluster.status(NODE) == "active", within=10)
        world.during(150)
        assert world.replicas[0].said.count("it may not; trying again") in (2, 3)
        assert "the server answers again" not in world.replicas[0].said


class TestFailures:
    def life(self, world: World) -> None:
        """All that happens in a short maintenance that another time is asked for in, to its end."""
        world.cluster.running[NODE] = [pod("a"), pod("b")]
        world.cluster.ask_for(NODE, "2m")
        world.until(lambda: world.cluster.status(NODE) == "active", within=60)
        world.cluster.ask_for(NODE, "1m")
        world.until(lambda: world.cluster.status(NODE) == "ended", within=100)
        world.during(30)

    def judge(self, world: World) -> None:
        assert sorted(world.cluster.evicted) == ["default/a", "default/b"]
        assert not (world.cluster.is_cordoned(NODE) or world.cluster.is_marked(NODE))
        assert world.cluster.leases[NODE]["spec"].get("leaseDurationSeconds") is None

    def requests(self) -> int:
        world = World()
        world.cluster.add_node(NODE)
        self.life(world)
        return len(world.cluster.requests)

    @pytest.mark.parametrize("way", ["fails", "loses", "dies"])
    def test_it_ends_well_whichever_request_fails(self, way: str) -> None:
        tried = self.requests()
        assert tried > 60
        for number in range(1, tried):
            world = World()
            world.cluster.add_node(NODE)
            if way == "fails":
                world.cluster.fails_at = number
            elif way == "loses":
                world.cluster.loses_at = number
            else:
                self.kill_at(world, number)
            self.life(world)
            self.judge(world)

    def kill_at(self, world: World, number: int) -> None:
        """Have the controller be killed before a request, and another one start then."""
        left = number

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        world.cluster.each_request = count
        go = world.replicas[0].go

        def go_or_die() -> None:
            try:
                go()
            except Killed:
                world.replicas = [world.replica("b")]

        world.replicas[0].go = go_or_die  # type: ignore[method-assign]


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

    def test_is_drained_anew_if_it_asks_for_it(self, world: World) -> None:
        self.make_anew(world)
        world.cluster.running[NODE] = [pod("b")]
        world.cluster.ask_for(NODE, "20m")
        world.until(lambda: world.cluster.status(NODE) == "active", within=20)
        assert world.cluster.evicted == ["default/b"]
        (owner,) = world.cluster.leases[NODE]["metadata"]["ownerReferences"]
        assert owner["uid"] == "another"
        assert any(f"{NODE}: new, stale" in each for each in world.replicas[0].said)
