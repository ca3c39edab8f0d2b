"""What every engine tells of what happened in its pools."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.errors import NoLease, NotAllowed
from leasectl.model import Lease, Request
from leasectl.state.event import Event, EventFilter, EventKind
from leasectl.system.poll import is_readable
from tests.contract.world import Client, World
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.story import story_of
from tests.kit.waits import eventually, wait_readable

ONE = Request("T")
TWO = Request("T", count=2)


def make_pool(world: World, capacity: int, pool_type: str = "T") -> None:
    names = [f"{pool_type}--{number:02d}" for number in range(capacity)]
    world.pools.create_pool(pool_type, names)


def told(world: World, *kinds: EventKind) -> list[Event]:
    """The events of some kinds; of all kinds but those of pools, if none is named."""
    events = world.events.read()
    if kinds:
        return [each for each in events if each.kind in kinds]
    return [each for each in events if not each.kind.startswith("pool")]


def kinds(world: World) -> list[str]:
    return [each.kind for each in told(world)]


def names(leases: tuple[Lease, ...]) -> tuple[str, ...]:
    return tuple(each.name for each in leases)


def fences(leases: tuple[Lease, ...]) -> tuple[int, ...]:
    return tuple(each.fence for each in leases)


def about(seconds: float, told_seconds: float | None) -> bool:
    """Whether a time is what was let pass; where it is real, some more has passed meanwhile."""
    return told_seconds is not None and -0.5 <= told_seconds - seconds < 3


def free(world: World, client: Client, by: str) -> None:
    with world.engine.atomic():
        world.engine.free(client.claim_key, by=by)  # type: ignore[arg-type]


class TestAHold:
    def test_it_was_queued_granted_and_released(self, world: World) -> None:
        make_pool(world, 2)
        client = world.client()
        leases = client.acquire(TWO)
        client.free()
        queued, granted, released = told(world)
        assert (queued.kind, granted.kind, released.kind) == ("queued", "granted", "released")
        assert queued.names == ()
        assert granted.names == released.names == names(leases)
        assert granted.fences == released.fences == fences(leases)
        lease = leases[0]
        for event in (queued, granted, released):
            assert event.type == "T"
            assert event.handle == client.claim_key
            assert event.holder_identity == lease.holder_identity
            assert event.ticket == lease.ticket
            assert event.count == 2
        assert granted.grant == released.grant == lease.grant
        assert queued.time <= granted.time <= released.time

    def test_of_one_of_each_pool_each_pool_tells_of_its_own(self, world: World) -> None:
        make_pool(world, 1)
        make_pool(world, 1, "U")
        client = world.client()
        client.acquire(Request("U", other_types=("T",), needs_all=True))
        client.free()
        for pool_type in ("T", "U"):
            queued, granted, released = (each for each in told(world) if each.type == pool_type)
            assert (queued.kind, granted.kind, released.kind) == ("queued", "granted", "released")
            assert granted.names == released.names == (f"{pool_type}--00",)
            assert queued.ticket == granted.ticket == released.ticket
            assert granted.grant == released.grant

    def test_the_name_and_the_priority_are_told(self, world: World) -> None:
        make_pool(world, 2)
        world.client().acquire(Request("T", name="T--01", priority=7))
        queued, granted = told(world)
        assert queued.names == granted.names == ("T--01",)
        assert queued.priority == granted.priority == 7

    @pytest.mark.parametrize(
        ("label", "url"),
        [("https://ci/build/1", "https://ci/build/1"), ("javascript:alert(1)", "")],
    )
    def test_the_address_of_the_holders_build_is_told(
        self, world: World, label: str, url: str
    ) -> None:
        make_pool(world, 1)
        world.client().acquire(Request("T", labels=(("build", label),)))
        assert [each.build_url for each in told(world, "queued", "granted")] == [url, url]

    def test_the_wait_and_the_hold_are_told(self, world: World) -> None:
        make_pool(world, 1)
        holder, waiter = world.client(), world.client()
        holder.acquire(ONE)
        pending = waiter.begin(ONE)
        world.let_pass(7)
        holder.free()
        pending.result()
        world.let_pass(5)
        waiter.free()
        at_once, later = (each.wait_seconds for each in told(world, "granted"))
        assert about(0, at_once) and about(7, later), (at_once, later)
        first, second = (each.hold_seconds for each in told(world, "released"))
        assert about(7, first) and about(5, second), (first, second)

    @pytest.mark.parametrize("by", ["command", "delay", "guard", "run"])
    def test_who_ended_it_is_told(self, world: World, by: str) -> None:
        make_pool(world, 1)
        client = world.client()
        client.acquire(ONE)
        free(world, client, by)
        assert [each.by for each in told(world)] == ["", "", by]

    def test_what_is_released_by_and_by_ends_by_and_by(self, world: World) -> None:
        make_pool(world, 2)
        client = world.client()
        client.acquire(TWO)
        client.free(["T--01"])
        client.free()
        client.free()
        assert [each.names for each in told(world, "released")] == [("T--01",), ("T--00",)]


class TestALoss:
    def test_what_ran_out_is_lost_and_released_once(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        leases = holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.let_pass(world.ttl_seconds + 1)
        world.pools.pools()
        holder.free()
        world.client().acquire(ONE)
        lost, released = told(world, "lost", "released")
        assert (lost.kind, released.kind) == ("lost", "released")
        for event in (lost, released):
            assert (event.by, event.names, event.fences) == ("ttl", names(leases), fences(leases))
            assert event.handle == holder.claim_key
            assert event.holder_identity == leases[0].holder_identity
            assert (event.hold_seconds or 0) >= world.ttl_seconds

    def test_what_is_ended_by_force_is_lost_at_once_and_released_when_it_is_free(
        self, world: World
    ) -> None:
        make_pool(world, 1)
        holder = world.client()
        leases = holder.acquire(Request("T", ttl_seconds=world.ttl_seconds))
        world.pools.end_early(holder.claim_key, names(leases), guard=None, reason="ann: broken")
        (lost,) = told(world, "lost", "released")
        assert (lost.kind, lost.by, lost.reason) == ("lost", "force", "ann: broken")
        assert lost.names == names(leases)
        holder.free()
        world.client().acquire(ONE)
        (released,) = told(world, "released")
        assert (released.by, released.names) == ("force", names(leases))
        assert released.handle == holder.claim_key

    def test_what_is_ended_by_force_and_not_kept_is_released_with_it(self, world: World) -> None:
        make_pool(world, 1)
        holder = world.client()
        leases = holder.acquire(ONE)
        world.pools.end_early(holder.claim_key, names(leases), guard=None, reason="ann")
        ends = told(world, "lost", "released")
        assert [(each.kind, each.by) for each in ends] == [("lost", "force"), ("released", "force")]

    def test_what_is_removed_is_lost_and_released(self, world: World) -> None:
        make_pool(world, 3)
        holder = world.client()
        holder.acquire(TWO)
        remove_resources(world.members, "T", ["T--00", "T--01", "T--02"], force=True)
        ends = told(world, "lost", "released")
        assert {each.by for each in ends} == {"removal"}
        assert {each.handle for each in ends} == {holder.claim_key}
        for kind in ("lost", "released"):
            ended = [name for each in ends if each.kind == kind for name in each.names]
            assert sorted(ended) == ["T--00", "T--01"]
        holder.free()
        assert len(told(world, "lost", "released")) == len(ends)


class TestNoGrant:
    def test_who_has_waited_for_long_enough_gave_up(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        late = world.client()
        with pytest.raises(NoLease):
            late.acquire(ONE, wait=0)
        queued, gave_up = told(world)[-2:]
        assert (queued.kind, gave_up.kind) == ("queued", "gave up")
        assert queued.handle == gave_up.handle == late.claim_key
        assert queued.ticket == gave_up.ticket
        assert gave_up.reason
        assert gave_up.wait_seconds is not None

    def test_who_was_withdrawn_gave_up(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        waiter = world.client()
        pending = waiter.begin(ONE)
        world.let_pass(3)
        world.withdraw(waiter)
        with pytest.raises(NoLease):
            pending.result()
        (gave_up,) = told(world, "gave up")
        assert gave_up.handle == waiter.claim_key
        assert gave_up.reason == "released while it waited"
        assert about(3, gave_up.wait_seconds), gave_up

    def test_who_died_gave_up(self, world: World) -> None:
        make_pool(world, 1)
        holder, dead = world.client(), world.client()
        holder.acquire(ONE)
        dead.begin(ONE)
        pending = world.client().begin(ONE)
        dead.kill()
        holder.free()
        pending.result()
        eventually(lambda: told(world, "gave up"))
        (gave_up,) = told(world, "gave up")
        assert (gave_up.handle, gave_up.reason) == (dead.claim_key, "its process ended")

    def test_who_waits_for_several_gave_up_what_others_had(self, world: World) -> None:
        make_pool(world, 1)
        make_pool(world, 1, "U")
        world.client().acquire(ONE)
        either = world.client()
        (lease,) = either.acquire(Request("T", other_types=("U",)))
        assert lease.name == "U--00"
        (gave_up,) = told(world, "gave up")
        assert (gave_up.type, gave_up.handle) == ("T", either.claim_key)
        assert "U" in gave_up.reason


class TestAPool:
    def test_it_was_made_changed_and_deleted(self, world: World) -> None:
        world.pools.create_pool("T", ["a", "b"], settings=PoolSettings(pace_seconds=20.0))
        add_resources(world.members, "T", ["c"])
        remove_resources(world.members, "T", ["a", "c"])
        world.pools.change_settings("T", PoolSettings(pace_seconds=10.0, burst=2))
        world.pools.delete_pool("T", force=False)
        made, added, removed, paced, deleted = world.events.read()
        assert (made.kind, made.names) == ("pool made", ("a", "b"))
        assert made.reason == "2 resources, pace 20s"
        assert (added.kind, added.names) == ("pool changed", ("c",))
        assert added.reason == "1 resource added"
        assert (removed.kind, removed.names) == ("pool changed", ("a", "c"))
        assert removed.reason == "2 resources removed"
        assert (paced.kind, paced.names) == ("pool changed", ())
        assert paced.reason == "pace 10s, burst 2; before: pace 20s"
        assert (deleted.kind, deleted.names) == ("pool deleted", ("b",))
        assert {each.type for each in (made, added, removed, paced, deleted)} == {"T"}

    def test_what_was_refused_has_not_happened(self, world: World) -> None:
        make_pool(world, 1)
        world.client().acquire(ONE)
        before = world.events.last_number()
        with pytest.raises(NotAllowed):
            remove_resources(world.members, "T", ["T--00"])
        with pytest.raises(NotAllowed):
            world.pools.delete_pool("T", force=False)
        assert [e for e in told(world, "pool changed", "pool deleted") if e.number > before] == []

    def test_who_held_and_who_waited_is_told_of_a_pool_that_is_deleted(self, world: World) -> None:
        make_pool(world, 1)
        holder, waiter = world.client(), world.client()
        holder.acquire(ONE)
        pending = waiter.begin(ONE)
        world.pools.delete_pool("T", force=True)
        with pytest.raises(Exception):  # noqa: B017 - what is raised, other tests say
            pending.result()
        ends = told(world, "lost", "released", "gave up")
        assert {(each.kind, each.handle) for each in ends} == {
            ("lost", holder.claim_key),
            ("released", holder.claim_key),
            ("gave up", waiter.claim_key),
        }
        assert len(ends) == 3

    def test_who_died_in_its_queue_has_an_end_before_it(self, world: World) -> None:
        make_pool(world, 1)
        holder, waiter = world.client(), world.client()
        holder.acquire(ONE)
        waiter.begin(ONE)
        waiter.kill()
        holder.free()
        world.pools.delete_pool("T", force=False)
        (gave_up,) = told(world, "gave up")
        assert gave_up.handle == waiter.claim_key
        (deleted,) = told(world, "pool deleted")
        assert gave_up.number < deleted.number

    def test_the_settings_of_a_usual_pool_are_none(self, world: World) -> None:
        world.pools.create_pool("T", ["a"], settings=NO_SETTINGS)
        (made,) = told(world, "pool made")
        assert made.reason == "1 resource, no pace"


class TestReading:
    def test_events_are_in_order_and_from_any_number_on(self, world: World) -> None:
        make_pool(world, 2)
        for _ in range(3):
            client = world.client()
            client.acquire(ONE)
            client.free()
        events = list(world.events.read())
        numbers = [each.number for each in events]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == world.events.last_number()
        assert list(world.events.read(after=numbers[4])) == events[5:]
        assert list(world.events.read(after=numbers[-1])) == []

    def test_only_those_are_read_that_are_wanted(self, world: World) -> None:
        make_pool(world, 2)
        make_pool(world, 1, "U")
        first, second = world.client(), world.client()
        first.acquire(TWO)
        second.acquire(Request("U"))
        events = list(world.events.read())
        instant = events[3].time
        for wanted in (
            EventFilter(type="U"),
            EventFilter(handle=first.claim_key),
            EventFilter(name="T--01"),
            EventFilter(name="T--0"),
            EventFilter(holder=second.claim_key[-3:]),
            EventFilter(since=instant),
            EventFilter(until=instant),
            EventFilter(type="T", handle=second.claim_key),
        ):
            assert list(world.events.read(wanted)) == list(filter(wanted.wants, events)), wanted

    def test_the_latest_come_newest_first(self, world: World) -> None:
        make_pool(world, 2)
        make_pool(world, 1, "U")
        for _ in range(3):
            client = world.client()
            client.acquire(TWO)
            client.free()
            world.client().begin(Request("U"))
        events = list(world.events.read())
        for wanted in (
            EventFilter(),
            EventFilter(type="T"),
            EventFilter(type="none"),
            EventFilter(handle=client.claim_key),
            EventFilter(name="T--01", until=events[5].time),
            EventFilter(since=events[5].time),
        ):
            newest_first = list(filter(wanted.wants, events))[::-1]
            for number in (1000, 4, 1, 0):
                found = world.events.latest(wanted, number)
                assert found == newest_first[:number], (wanted, number)
        assert (
            world.events.latest(EventFilter(type="T"), 4, only_recent=True)
            == ([each for each in events if each.type == "T"][:-5:-1])
        )

    def test_there_is_none_before_the_first(self, world: World) -> None:
        assert world.events.last_number() == 0
        assert list(world.events.read()) == []

    def test_who_watches_hears_of_each(self, world: World) -> None:
        make_pool(world, 1)
        watch = world.events.watch()
        try:
            last = world.events.last_number()
            watch.clear()
            while is_readable(watch.fd, 0.2):  # of what was before, perhaps
                watch.clear()
            client = world.client()
            client.acquire(ONE)
            wait_readable(watch.fd)
            watch.clear()
            eventually(lambda: len(list(world.events.read(after=last))) == 2)
            client.free()
            wait_readable(watch.fd)
        finally:
            watch.close()


def test_what_many_did_at_once_is_told_as_it_was(world: World) -> None:
    make_pool(world, 2)
    endings = [world.client().begin_rounds(request, 6) for request in (ONE, ONE, TWO, ONE)]
    holds = [hold for ending in endings for hold in ending()]
    eventually(lambda: len(told(world, "released")) == 24)
    events: Iterable[Event] = world.events.read()
    if not world.numbers_what_happened:  # they come as they happened, numbered as they were told
        events = [each._replace(number=n) for n, each in enumerate(events, start=1)]
    story = story_of(events)
    assert story.broken == []
    assert (story.held, story.waiting) == ({}, set())
    granted = {
        (name, fence)
        for each in told(world, "granted")
        for name, fence in zip(each.names, each.fences)
    }
    assert granted == {(hold.lease.name, hold.lease.fence) for hold in holds}
    assert len(told(world, "granted")) == 24
