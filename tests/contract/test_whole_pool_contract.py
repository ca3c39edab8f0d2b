"""Requests for all resources of a pool, on every engine."""

from __future__ import annotations

import pytest

from leasectl.errors import InvalidRequest, NoLease
from leasectl.model import Request
from leasectl.text.naming import WHOLE_POOL_LABEL
from tests.contract.test_member_contract import names_of, to_cordon, update
from tests.contract.world import World
from tests.kit.pool_changes import add_resources, remove_resources

ALL = Request("T", 2, labels=(WHOLE_POOL_LABEL,))


@pytest.fixture(autouse=True)
def pool(world: World) -> None:
    world.pools.create_pool("T", ["T--00", "T--01"])


def test_whole_pool_is_granted_when_every_other_holder_has_released(world: World) -> None:
    holder = world.client()
    holder.acquire(Request("T"))
    exclusive, shared = world.client(), world.client()
    whole, one = exclusive.begin(ALL), shared.begin(Request("T"))
    holder.free()
    assert sorted(names_of(whole.result())) == ["T--00", "T--01"]
    assert not one.done()
    exclusive.free()
    assert len(one.result()) == 1


@pytest.mark.parametrize("change", ["added", "removed"])
def test_request_ends_without_a_lease_if_the_pool_has_changed(world: World, change: str) -> None:
    holder, other = world.client(), world.client()
    holder.acquire(Request("T", name="T--00"))
    other.acquire(Request("T", name="T--01"))
    whole = world.client().begin(ALL)
    if change == "added":
        add_resources(world.members, "T", ["T--02"])
        there = "there are 3"
    else:
        remove_resources(world.members, "T", ["T--01"], force=True)
        there = "there is 1"
    other.free()
    holder.free()
    with pytest.raises(NoLease, match=f"--count all counted 2 resources, and now {there}"):
        whole.result()
    (pool,) = world.pools.pools("T")
    assert (pool.held, pool.queue) == (0, ())


def test_cordoned_resource_keeps_the_whole_pool_from_being_granted(world: World) -> None:
    update(world, to_cordon(), "T--01")
    with pytest.raises(InvalidRequest, match="2 resources, of which 1 is unavailable"):
        world.client().acquire(ALL)
