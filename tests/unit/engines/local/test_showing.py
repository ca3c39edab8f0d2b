"""leasectl.engines.local.showing: what people see of a pool and of those who wait for it."""

from __future__ import annotations

import os

import pytest

from leasectl.engines.facts import PoolSettings, Resource
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.showing import resources
from leasectl.engines.notes import NoteChange
from leasectl.engines.rules.membership import Lifetime, Member, cordon, join
from leasectl.model import Request, Where
from leasectl.state.reads import snapshot
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

EU: Where = (("zone", "eu", True),)


def test_of_a_claim_all_is_shown_that_was_granted(desk: Desk) -> None:
    desk.pool(2)
    request = Request("T", ttl_seconds=60.0, labels=(("job", "nightly"),))
    granted_at = desk.time.clock.wall()
    handle = desk.acquire(request)
    (lease,) = handle.leases
    changes = [NoteChange("T", "T--00", lease.fence, None, "marked", "")]
    assert desk.service.notes.change(changes) == (True,)
    desk.time.advance(10.0)
    (pool,) = desk.service.pools.pools("T")
    held, free = pool.resources
    assert held.lease is not None
    assert held.lease._replace(labels=()) == lease._replace(labels=())
    assert (held.lease.labels, held.lease.acquire_time) == (request.labels, granted_at)
    assert (held.claim_key, held.expires_in_seconds, held.note) == (handle.id, 50.0, "marked")
    assert (held.ended, held.member) == (None, None)
    assert free[1:] == (None,) * 10
    assert (pool.held, pool.capacity, pool.settings) == (1, 2, PoolSettings())


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


def test_of_a_name_all_is_shown_that_is_so_of_it(desk: Desk) -> None:
    desk.pool(2)
    members = desk.service.members
    lives = Lifetime(ttl_seconds=30.0)
    members.update(["n"], lambda each, pools: join(each, "T", pools, lifetime=lives))
    members.update(["T--01"], lambda each, _: cordon(each, is_cordoned=True))
    handle = desk.acquire(Request("T", name="n"))
    desk.time.advance(10.0)
    (pool,) = desk.service.pools.pools("T")
    plain, cordoned, joined = pool.resources
    assert plain.member is None
    assert cordoned.member == Member("T--01", "T", cordoned=True)
    assert (cordoned.lease, cordoned.is_closed, plain.is_closed) == (None, True, False)
    assert joined.member is not None
    assert (joined.member.lifetime, joined.member.holder) == (lives, handle.holder_identity)
    assert (joined.claim_key, joined.leaves_in_seconds) == (handle.id, 20.0)


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
