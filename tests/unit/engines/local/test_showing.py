"""leasectl.engines.local.pools: what people see of a pool and of those who wait for it."""

from __future__ import annotations

import os

import pytest

from leasectl.engines.facts import PoolSettings, Resource
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.pools import resources
from leasectl.engines.rules.membership import cordon
from leasectl.model import Request, Where
from leasectl.state.reads import snapshot
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

EU: Where = (("zone", "eu", True),)


def test_where_nothing_more_is_so_of_any_the_same_is_shown(desk: Desk) -> None:
    desk.pool(3)
    desk.acquire(Request("T", ttl_seconds=60.0, labels=(("job", "nightly"),)))
    desk.time.advance(10.0)

    def shown() -> tuple[Resource, ...]:
        with snapshot(desk.state):
            return resources(desk.state, "T", desk.time.clock.elapsed())

    plain = shown()
    assert plain[0].lease is not None
    desk.pool(1, "U")  # of which more is so, so that it is looked for of all
    desk.service.members.update(["U--00"], lambda each, _: cordon(each, is_cordoned=True))
    assert shown() == plain


@pytest.mark.parametrize("aging", [0.0, 10.0])
def test_of_who_waits_all_is_shown_that_was_asked_for(desk: Desk, line: Line, aging: float) -> None:
    settings = PoolSettings(aging_seconds=aging)
    desk.service.pools.create_pool("T", ["T--00", "T--01"], settings=settings)
    desk.service.members.update(
        ["T--00"], lambda each, _: each._replace(properties=(("zone", "eu"),))
    )
    desk.acquire(Request("T", 2))
    since = desk.time.clock.wall()
    line.come("plain", Request("T", 2, labels=(("job", "nightly"),)))
    desk.time.advance(25.0)
    line.come("europe", Request("T", where=EU, priority=1))
    line.come("named", Request("T", name="T--01", priority=5))
    with desk.state.transaction():
        suspend(line.queues, "T", line.tickets()[0])
    queue = desk.service.pools.pools("T")[0].queue
    named, *others = queue
    assert named == (
        4, "job/1/host/named", 1, since + 25.0, "named", os.getpid(),
        "T--01", (), True, 5, 5, (),
    )  # fmt: skip
    plain, europe = others if aging else others[::-1]
    assert plain == (
        2, "job/1/host/plain", 2, since, "plain", os.getpid(),
        None, (("job", "nightly"),), False, 0, 2 if aging else 0, (),
    )  # fmt: skip
    assert europe == (
        3, "job/1/host/europe", 1, since + 25.0, "europe", os.getpid(),
        None, (), False, 1, 1, EU,
    )  # fmt: skip


def test_who_waits_without_a_record_is_shown_as_its_ticket_says(desk: Desk) -> None:
    desk.pool(1)
    desk.acquire()
    desk.put_ticket(7)
    ((entry),) = desk.service.pools.pools("T")[0].queue
    assert entry == (7, "job/1/host/T-7", 1, 0.0, "T-7", None, None, (), False, 0, 0, ())
