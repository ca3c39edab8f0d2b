"""What pools look like where something is so of the names in them, on every engine."""

from __future__ import annotations

from functools import partial

from leasectl.engines.facts import Pool, Resource
from leasectl.engines.notes import NoteChange
from leasectl.engines.rules.membership import Lifetime, Member, set_default
from leasectl.model import Request
from leasectl.system.process import this_process
from tests.contract.test_member_contract import (
    GRACE,
    TTL,
    make_pools,
    to_add,
    to_cordon,
    to_expect,
    to_join,
    to_move,
    update,
)
from tests.contract.world import World


def shown(world: World, pool_type: str) -> tuple[Pool, dict[str, Resource]]:
    (pool,) = world.pools.pools(pool_type)
    return pool, {each.name: each for each in pool.resources}


def test_nothing_is_said_of_what_is_only_there(world: World) -> None:
    make_pools(world)
    pool, resources = shown(world, "B")
    assert resources == {"b-1": Resource("b-1")}
    assert pool.default_grace_seconds is None


def test_a_fact_is_shown_with_its_name_held_or_free(world: World) -> None:
    make_pools(world)
    client = world.client()
    (lease,) = client.acquire(Request("A", name="a-1"))
    update(world, to_move("B", when_free=True), "a-1")
    update(world, to_cordon(), "a-2")
    properties = (("k", "v"), ("l", ""))
    update(world, lambda member, _: member._replace(properties=properties), "a-1", "a-2")
    update(world, to_expect("A"), "a-2")
    world.notes.change([NoteChange("A", "a-1", lease.fence, None, "noted")])
    _, resources = shown(world, "A")
    held, free = resources["a-1"], resources["a-2"]
    assert held.member is not None and held.lease is not None
    assert held.member._replace(holder=None) == Member(
        "a-1", "A", moves_to="B", properties=properties
    )
    assert (held.lease.name, held.note, free.note) == ("a-1", "noted", None)
    assert free.member == Member("a-2", "A", expected="A", cordoned=True, properties=properties)
    assert (free.lease, free.held_back_seconds, free.leaves_in_seconds) == (None, None, None)


def test_times_that_are_left_are_shown(world: World) -> None:
    make_pools(world)
    world.members.change_belonging(partial(set_default, pool_type="B", grace_seconds=GRACE))
    update(world, to_add("B"), "held-back")
    update(world, to_join("B", Lifetime(ttl_seconds=TTL)), "for-a-while")
    update(world, to_join("B", Lifetime(process=this_process())), "with-us")
    pool, resources = shown(world, "B")
    assert pool.default_grace_seconds == GRACE
    held_back, joined = resources["held-back"], resources["for-a-while"]
    assert held_back.member is not None and held_back.member.by_default
    assert 0 < (held_back.held_back_seconds or 0) <= GRACE
    assert 0 < (joined.leaves_in_seconds or 0) <= TTL
    assert (joined.held_back_seconds, joined.lease) == (None, None)
    assert resources["with-us"].member is not None
    lifetime = resources["with-us"].member.lifetime
    assert lifetime is not None and lifetime.process == this_process()
    world.let_pass(1.5 * GRACE)
    assert shown(world, "B")[1]["held-back"].held_back_seconds is None


def test_what_a_waiter_wants_is_shown_of_it(world: World) -> None:
    make_pools(world)
    where = (("k", "v", True), ("l", "", False))
    update(world, lambda member, _: member._replace(properties=(("k", "v"),)), "b-1")
    world.client().acquire(Request("B"))
    world.client().begin(Request("B", where=where))
    ((waiter,),) = [shown(world, "B")[0].queue]
    assert waiter.where == where
