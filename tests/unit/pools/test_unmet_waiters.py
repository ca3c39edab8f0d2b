"""Whose requests can't be met as a pool is now."""

from __future__ import annotations

from leasectl.engines.facts import Pool, QueueEntry, Resource
from leasectl.engines.rules.membership import Member
from leasectl.model import Where
from leasectl.pools.memberships import described, unmet_waiters

EU = (("region", "eu"),)


def waiting(
    ticket: int, count: int = 1, *, name: str | None = None, where: Where = ()
) -> QueueEntry:
    identity, key = f"job/{ticket}", f"key-{ticket}"
    return QueueEntry(ticket, identity, count, 0.0, key, name=name, where=where)


def pool(*members: Member, queue: tuple[QueueEntry, ...]) -> Pool:
    return Pool("T", tuple(Resource(each.name, member=each) for each in members), queue)


def test_who_can_be_met_is_left_out() -> None:
    now = pool(
        Member("a", "T", properties=EU),
        Member("b", "T", cordoned=True),
        Member("c", "T", moves_to="U"),
        queue=(
            waiting(1),
            waiting(2, 2),
            waiting(3, name="a"),
            waiting(4, name="b"),
            waiting(5, where=(("region", "eu", True),)),
            waiting(6, where=(("region", "eu", False),)),
        ),
    )
    assert [each.entry.ticket for each in unmet_waiters(now)] == [2, 4, 6]


def test_what_nothing_is_said_of_can_be_had() -> None:
    assert unmet_waiters(Pool("T", (Resource("a"),), (waiting(1),))) == ()


def test_it_says_whose_request_that_is() -> None:
    now = pool(Member("a", "T"), queue=(waiting(1, 2),))
    said = "\n".join(map(described, unmet_waiters(now)))
    assert said.startswith('job/1 waits on, as pool "T" has 1 resource')
