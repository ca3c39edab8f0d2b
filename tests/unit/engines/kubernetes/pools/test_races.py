"""What becomes of a pool that one deletes and another makes, or uses, between two requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Callable

import pytest

from leasectl.engines.cluster import pools
from leasectl.engines.cluster.claims import Part
from leasectl.engines.cluster.entering import Update, all_known
from leasectl.engines.cluster.members import ClusterMembers
from leasectl.engines.cluster.objects import Change, PoolState
from leasectl.engines.cluster.pools import ClusterPools
from leasectl.engines.cluster.session import WaitSession
from leasectl.engines.contract import Outlook
from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import add, cordon, expect, move, set_default
from leasectl.errors import (
    InvalidRequest,
    LeaseError,
    NotAllowed,
    NotFound,
)
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import Killed, MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.pool_changes import add_resources
from tests.kit.support import ManualClock

NAMES = ["a", "b", "c"]
pytestmark = pytest.mark.usefixtures("nobody_is_waited_for")


class World:
    """A pool, whoever deletes it or adds to it, and another who comes in between."""

    def __init__(self) -> None:
        self.api = MadeUpApi()
        self.clock = ManualClock()
        self.one = Process(self.api, self.clock.clock, state_id="one")
        self.other = Process(self.api, self.clock.clock, state_id="other")
        self.one.pools.create_pool("T", NAMES)

    @property
    def state(self) -> PoolState | None:
        found = self.one.opened.context.pool_object("T")
        return None if found is None else found.state

    def close(self) -> None:
        """Begin to delete it, and be killed."""
        context = self.one.opened.context
        pool = context.pool_object("T")
        assert pool is not None
        closing = pool._replace(state="closing", word="w")
        assert context.objects.write(Change(pool, closing)).is_done

    def claimant(self, key: str, request: Request) -> Claimant:
        return Claimant(key, f"job/1/host/{key}", request)

    def break_in(self, number: int, act: Callable[[], bool]) -> Callable[[], bool | None]:
        """Do something before a request, by its number from here on.

        Returns:
            Tells what that said; None where there was no such request.
        """
        start, said = len(self.api.asked), []

        def before(at: int) -> None:
            if at - start == number:
                self.api.before = lambda at: None
                said.append(act())

        self.api.before = before
        return lambda: said[0] if said else None


def each_time(
    act: Callable[[World], bool], prepare: Callable[[World], object] = lambda world: None
) -> Iterator[World]:
    """Once for each request before which another comes in, as long as there are that many.

    Args:
        act: What that one does; returns whether it did anything.
        prepare: Does what is done before.

    Returns:
        The worlds, in each of which whoever uses this does the one thing.
    """
    number = times = 0
    while True:
        world = World()
        prepare(world)
        did = world.break_in(number, partial(act, world))
        yield world
        world.api.before = lambda at: None
        if did() is None:
            break
        number += 1
        times += bool(did())
    assert times > 0


def delete(world: World, *, force: bool = False) -> None:
    with contextlib.suppress(NotAllowed):
        world.one.pools.delete_pool("T", force=force)


def make_anew(world: World, names: Sequence[str] = NAMES) -> bool:
    """Make the pool of somebody else's that is half deleted anew, and use it."""
    if world.state not in ("closing", "gone"):
        return False
    world.other.pools.create_pool("T", names)
    assert world.other.acquire("k/1", Request("T", count=len(names)))
    return True


class TestDeletedAndMadeAnew:
    """The one who deletes was slow, and goes on."""

    @pytest.mark.parametrize("force", [True, False])
    @pytest.mark.parametrize("is_expected", [True, False])
    @pytest.mark.parametrize("names", [NAMES, ["x", "y"]])
    def test_the_new_pool_is_left_alone(
        self, force: bool, is_expected: bool, names: list[str]
    ) -> None:
        def say_where(world: World) -> None:
            if is_expected:
                say = lambda member, pools: expect(member, "T", pools)  # noqa: E731
                world.one.opened.members.update(NAMES, say)

        made: list[Callable[[], Outlook]] = []

        def come_in(world: World) -> bool:
            if not make_anew(world, names):
                return False
            request = world.claimant("k/2", Request("T"))
            waiter = world.other.engine.waiter(request, until=None)
            waiter.enqueue()
            made.append(waiter.claim)
            return True

        for world in each_time(come_in, say_where):
            made.clear()
            delete(world, force=force)
            if made:
                assert world.other.engine.renew("k/1") == tuple(names)
                assert made[0]().leases is None
                assert world.one.lost == []

    def test_an_unused_one_is_left_alone_too(self) -> None:
        def come_in(world: World) -> bool:
            if world.state not in ("closing", "gone"):
                return False
            world.other.pools.create_pool("T", ["x"])
            world.made = True  # type: ignore[attr-defined]
            return True

        for world in each_time(come_in):
            delete(world)
            if hasattr(world, "made"):
                (pool,) = world.other.pools.pools("T")
                assert [each.name for each in pool.resources] == ["x"]

    def test_what_is_the_default_since_stays_that(self) -> None:
        def come_in(world: World) -> bool:
            is_made = make_anew(world)
            if is_made:
                say = partial(set_default, pool_type="T", grace_seconds=5.0)
                world.other.opened.members.change_belonging(say)
            return is_made

        for world in each_time(come_in):
            delete(world, force=True)
            there = world.state == "open"
            assert world.other.opened.members.belonging().default == ("T" if there else None)

    def test_what_is_to_move_to_the_new_one_does(self) -> None:
        def hold(world: World) -> None:
            world.one.pools.create_pool("U", ["u"])
            assert world.other.acquire("k/0", Request("U"))

        def come_in(world: World) -> bool:
            is_made = world.state == "closing" and make_anew(world, ["x"])
            if is_made:
                say = lambda member, pools: move(member, "T", pools, when_free=True)  # noqa: E731
                world.other.opened.members.update(["u"], say)
            return is_made

        for world in each_time(come_in, hold):
            delete(world)
            (member,) = world.other.opened.members.members(["u"])
            assert member.moves_to == ("T" if world.state == "open" else None)


class TestClosing:
    def test_one_whose_closer_was_killed_can_be_made_anew_with_the_same_names(self) -> None:
        closed = 0
        for number in range(14):
            world = World()
            world.break_in(number, partial(_kill))
            with contextlib.suppress(Killed):
                world.one.pools.delete_pool("T", force=False)
            if world.state != "closing":
                continue
            closed += 1
            with pytest.raises(NotFound, match="it is just being deleted"):
                world.other.acquire("k/1", Request("T"))
            world.other.pools.create_pool("T", NAMES)
            assert world.other.acquire("k/1", Request("T", count=3))
        assert closed > 2

    def test_one_that_turns_out_to_be_used_can_not(self) -> None:
        world = World()
        view = world.other.opened.context.pool("T")
        resource = view.resources["b"]
        world.close()
        waiter = world.other.engine.waiter(world.claimant("k/1", Request("T")), until=None)
        assert world.other.opened.context.claims.make([Part(waiter.ticket, view, [resource])])
        with pytest.raises(InvalidRequest, match='pool "T" exists'):
            world.other.pools.create_pool("T", NAMES)
        assert [each.type for each in world.one.pools.pools()] == ["T"]

    def test_who_waits_there_waits_on_until_it_is_refused(self) -> None:
        """It was unused to whoever deletes it, right before somebody got it and another came."""
        waits = 0
        for number in range(20):
            world = World()
            waiter = world.other.engine.waiter(world.claimant("k/2", Request("T")), until=None)
            found: list[Outlook] = []

            def come_in(
                world: World = world, waiter: object = waiter, found: list[Outlook] = found
            ) -> bool:
                if world.state == "closing":
                    found.append(waiter.claim())  # type: ignore[attr-defined]
                return True

            def queue(
                at: int, world: World = world, waiter: object = waiter, number: int = number
            ) -> None:
                if world.api.asked[at][0] == "update":
                    world.api.before = lambda at: None
                    assert world.other.acquire("k/1", Request("T", count=3))
                    waiter.enqueue()  # type: ignore[attr-defined]
                    waiter.claim()  # type: ignore[attr-defined]
                    world.break_in(number, come_in)

            world.api.before = queue
            with pytest.raises(NotAllowed, match="3 held"):
                world.one.pools.delete_pool("T", force=False)
            world.api.before = lambda at: None
            waits += len(found)
            assert all(each.look_again_at is not None for each in found)
            assert world.other.engine.free("k/1") == tuple(NAMES)
            assert waiter.claim().leases is not None
        assert waits > 2

    def test_who_waits_where_the_closer_was_killed_is_told(self) -> None:
        world = World()
        assert world.other.acquire("k/1", Request("T", count=3))
        waiter = world.other.engine.waiter(world.claimant("k/2", Request("T")), until=None)
        waiter.enqueue()
        assert waiter.claim().leases is None
        world.close()
        assert waiter.claim().look_again_at is not None
        world.clock.advance(1.1)
        with pytest.raises(NotFound, match="it is just being deleted"):
            waiter.claim()


def test_who_makes_a_large_pool_is_given_the_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.break_in(6, _kill)  # its one name is there
    with pytest.raises(Killed):
        world.one.pools.create_pool("L", ["n0"])
    making = world.one.opened.context.pool_object("L")
    assert making is not None and making.state == "making"
    names = [f"n{number}" for number in range(30)]
    left = iter(names[1:])

    def go_on(seconds: float) -> None:
        """Do what that one would."""
        name = next(left, None)
        if name is None:
            ClusterPools(world.one.opened.context)._open(making, names, ())
            return
        to_add = lambda member, pools: add(member, "L", pools)  # noqa: E731
        context = world.one.opened.context
        update = Update([name], to_add, making=making)
        ClusterMembers(context).carry_out(update, all_known(context))

    monkeypatch.setattr(pools, "pause", go_on)
    with pytest.raises(InvalidRequest, match='pool "L" exists'):
        world.other.pools.create_pool("L", ["x"])
    (pool,) = world.other.pools.pools("L")
    assert sorted(each.name for each in pool.resources) == sorted(names)


def test_names_that_could_not_all_be_added_are_taken_back_but_for_what_others_did() -> None:
    def come_in(world: World) -> bool:
        added = world.other.opened.members.members(["n1", "n2"])
        if [each.pool for each in added] != ["T", None]:
            return False
        go_there = lambda member, pools: move(member, "U", pools, when_free=False)  # noqa: E731
        world.other.opened.members.update(["n1"], go_there)
        add_resources(world.other.members, "U", ["n2"])
        return True

    for world in each_time(come_in, lambda world: world.one.pools.create_pool("U", ["u"])):
        with contextlib.suppress(LeaseError):
            add_resources(world.one.members, "T", ["n1", "n2"])
        pools = [each.pool for each in world.other.opened.members.members(["n1", "n2"])]
        assert pools in (["T", "T"], ["U", "U"])


def test_what_was_paid_for_and_not_had_is_paid_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is had right after another's, however long the pace."""
    # The API of this world has no watches: each claim looks at the pool as it is.
    monkeypatch.setattr(WaitSession, "listen", lambda *args, **kwargs: None)
    world = World()
    world.one.pools.change_settings("T", PoolSettings(1200.0, 1, 0.0))
    first = world.one.engine.waiter(world.claimant("k/1", _named("a")), until=None)
    first.enqueue()

    def close_it(at: int, to: bool = True) -> None:
        if world.api.asked[at] == ("update", "a"):
            world.api.before = lambda at: None
            mark = lambda member, pools: cordon(member, is_cordoned=to)  # noqa: E731
            world.other.opened.members.update(["a"], mark)

    world.api.before = close_it
    assert first.claim().leases is None
    first.listen(())  # whoever sleeps may do so for longer than a pace
    world.clock.advance(1201)
    second = world.other.engine.waiter(world.claimant("k/2", _named("b")), until=None)
    second.enqueue()
    due = second.claim().next_grant_at
    assert due is not None
    world.clock.advance(due - world.clock.clock.elapsed())
    assert second.claim().leases is not None
    world.other.opened.members.update(["a"], lambda member, _: cordon(member, is_cordoned=False))
    outlook = first.claim()
    assert (outlook.leases, outlook.next_grant_at is None) == (None, False)


def _named(name: str) -> Request:
    return Request("T", name=name, ttl_seconds=90000.0)


def _kill() -> bool:
    raise Killed
