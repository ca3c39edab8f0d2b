"""What holds of requests that withdraw older ones, on every engine."""

from __future__ import annotations

import pytest

from leasectl.errors import Cancelled
from leasectl.model import Request
from leasectl.text.naming import superseding_label
from tests.contract.world import World
from tests.kit.pool_changes import add_resources
from tests.kit.waits import eventually


def request(key: str = "pr-7", **changes: object) -> Request:
    plain = Request("T", labels=(superseding_label(key),))
    return plain._replace(**changes)  # type: ignore[arg-type]


def queue(world: World) -> list[str]:
    (pool,) = world.pools.pools("T")
    return [each.claim_key for each in pool.queue]


@pytest.fixture(autouse=True)
def pool(world: World) -> None:
    world.pools.create_pool("T", ["T--00"])


def test_the_newest_withdraws_the_older_of_its_key_and_they_are_told_why(world: World) -> None:
    holder, other = world.client(), world.client()
    holder.acquire(request())
    kept = other.begin(request("pr-8"))
    plain = world.client()
    unkeyed = plain.begin(Request("T"))
    waiters = [world.client() for _ in range(3)]
    pending = [each.begin(request()) for each in waiters]
    for each in pending[:2]:
        with pytest.raises(Cancelled, match=r"superseded by a newer request of .* pr-7"):
            each.result()
    expected = [other.claim_key, plain.claim_key, waiters[2].claim_key]
    eventually(lambda: queue(world) == expected, what="only the older are gone")
    assert holder.free() == ("T--00",)  # a lease is left alone
    kept.result()
    other.free()
    unkeyed.result()
    plain.free()
    assert len(pending[2].result()) == 1


def test_a_request_that_is_granted_at_once_withdraws_the_older_too(world: World) -> None:
    add_resources(world.members, "T", ["T--01"])
    world.client().acquire(Request("T", name="T--00"))
    older = world.client().begin(request(name="T--00"))
    assert len(world.client().acquire(request())) == 1
    with pytest.raises(Cancelled, match="superseded"):
        older.result()


def test_a_request_that_does_not_wait_and_gets_nothing_withdraws_none(world: World) -> None:
    holder, older, newer = (world.client() for _ in range(3))
    holder.acquire(Request("T"))
    pending = older.begin(request())
    with pytest.raises(Exception, match="no lease"):
        newer.acquire(request())
    assert queue(world) == [older.claim_key]
    holder.free()
    assert len(pending.result()) == 1
