"""leasectl.backends.pool.closed: why what is free can't be had, for who has waited in vain."""

from __future__ import annotations

import pytest

from leasectl.backends.pool.closed import closed_in, why_closed
from leasectl.engines.facts import Pool, Resource
from leasectl.engines.rules.membership import Member, cordon
from leasectl.model import Lease
from tests.kit.made_up_store import MadeUpStore
from tests.kit.support import ManualClock

OPEN = Member("n", "T")
CORDONED = OPEN._replace(cordoned=True)
LEAVING = OPEN._replace(leaves=True)
MOVING = OPEN._replace(moves_to="U")


def pool(*resources: Resource) -> Pool:
    return Pool("T", resources=resources, queue=())


def free(member: Member | None = None, held_back: float | None = None) -> Resource:
    return Resource("n", member=member, held_back_seconds=held_back)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ((), ""),
        ((free(), free(OPEN)), ""),
        ((free(CORDONED), free(), free(CORDONED)), "2 cordoned"),
        ((free(LEAVING), free(MOVING)), "2 leaving"),
        ((free(held_back=60.2),), "1 held back for 1m1s"),
        ((free(OPEN, 60.0), free(held_back=90.0)), "2 held back for 1m"),
        # Nobody gets it when that time is over either.
        ((free(CORDONED, 5.0), free(held_back=90.0)), "1 cordoned, 1 held back for 1m30s"),
        ((free(CORDONED, 5.0),), "1 cordoned"),
        (
            (free(held_back=30.0), free(LEAVING), free(CORDONED)),
            "1 cordoned, 1 leaving, 1 held back for 30s",
        ),
    ],
)
def test_each_reason_is_told_with_how_many_it_keeps(
    resources: tuple[Resource, ...], said: str
) -> None:
    assert closed_in([pool(*resources)]) == said


def test_what_is_held_is_not_closed() -> None:
    lease = Lease("n", 1, 1, 1, "somebody", 0.0, 0.0, None, 0)
    assert closed_in([pool(free(CORDONED)._replace(lease=lease))]) == ""


def test_all_pools_count_that_were_waited_for(manual_clock: ManualClock) -> None:
    store = MadeUpStore(manual_clock.clock)
    pools, members = store.pools, store.members
    for pool_type in "ABC":
        pools.create_pool(pool_type, [f"{pool_type}--00"])
        members.update([f"{pool_type}--00"], lambda each, _: cordon(each, is_cordoned=True))
    assert why_closed(pools, ["A", "B"]) == "2 cordoned"
    assert why_closed(pools, ["A", "gone"]) == ""
