"""Two who change pools and names at once, each killed or left without an answer at each request.

Judged write by write: no name is ever in a pool that isn't there or that it doesn't belong to.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Callable

import pytest

from leasectl.engines.cluster.entering import all_known
from leasectl.engines.rules.membership import (
    Member,
    Pools,
    add,
    expect,
    expect_pattern,
    join,
    move,
    remove,
    set_default,
)
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Claimant, Request
from tests.kit.killing import EVERY_KILL
from tests.kit.kubernetes.made_up_api import Killed, MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.kubernetes.memberships import MembershipJudge
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.support import ManualClock

Act = Callable[[Process], object]


def update(names: list[str], decide: Callable[[Member, Pools], Member]) -> Act:
    return lambda process: process.opened.members.update(names, decide)


def belonging(change: Callable[[Pools], Pools]) -> Act:
    return lambda process: process.opened.members.change_belonging(change)


def join_held(process: Process) -> None:
    claimant = Claimant("k/9", "job/1/host/9", Request("U", name="n", ttl_seconds=60.0))
    process.opened.members.update(
        ["n"], lambda m, pools: join(m, "U", pools, lifetime=None), claimant=claimant
    )


ACTS: dict[str, Act] = {
    "create": lambda process: process.pools.create_pool("N", ["n", "m"]),
    "create again": lambda process: process.pools.create_pool("U", ["n"]),
    "add": lambda process: add_resources(process.members, "U", ["n", "m"]),
    "add by default": update(["n"], lambda m, pools: add(m, "D", pools)),
    "remove": lambda process: remove_resources(process.members, "U", ["u"]),
    "delete": lambda process: process.pools.delete_pool("U", force=False),
    "delete by force": lambda process: process.pools.delete_pool("U", force=True),
    "move": update(["a", "b"], lambda m, pools: move(m, "U", pools, when_free=False)),
    "move when free": update(["held"], lambda m, pools: move(m, "U", pools, when_free=True)),
    "take out": update(["a"], lambda m, pools: remove(m, "T", force=False)),
    "expect": update(["n"], lambda m, pools: expect(m, "U", pools)),
    "match": belonging(lambda pools: expect_pattern(pools, "n*", "T")),
    "default": belonging(lambda pools: set_default(pools, "U", 5.0)),
    "join held": join_held,
    "release": lambda process: process.engine.free("k/1"),
    "acquire": lambda process: process.acquire("k/2", Request("U", ttl_seconds=60.0)),
}
WAYS = ("goes on", "is killed", "loses the answer")


class World:
    """Pools T, U and D, of which D takes what nobody claims; "held" of T is held."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.api = MadeUpApi()
        process = self.process()
        for pool_type, names in (("T", ["a", "b", "held"]), ("U", ["u"]), ("D", ["d"])):
            process.pools.create_pool(pool_type, names)
        process.opened.members.change_belonging(
            partial(set_default, pool_type="D", grace_seconds=5.0)
        )
        process.acquire("k/1", Request("T", name="held", ttl_seconds=600.0))
        self.asked = 0

    def process(self) -> Process:
        return Process(self.api, self.clock.clock)

    def act(self, act: Act, at: int, way: str, between: Callable[[], None]) -> bool:
        """Do something, and something else in between; tells whether it came to that.

        Args:
            act: What is done.
            at: The number of the request at which the other comes, from 0.
            way: What happens then to the first.
            between: The other.
        """
        start, was_there = len(self.api.asked), False
        is_lost = way == "loses the answer"

        def come(number: int) -> None:
            nonlocal was_there
            if number - start != at or was_there:
                return
            was_there = True
            hooks = self.api.before, self.api.after
            self.api.before = self.api.after = lambda number: None
            between()
            self.api.before, self.api.after = hooks
            if way == "is killed":
                raise Killed
            if is_lost:
                raise BackendUnreachable("no answer")

        setattr(self.api, "after" if is_lost else "before", come)
        try:
            act(self.process())
        except (Killed, LeaseError):
            pass
        finally:
            self.api.before = self.api.after = lambda number: None
        return was_there

    def check(self, when: str) -> None:
        """The next command leaves nothing that is half done, but what it names."""
        process = self.process()
        process.opened.members.members()
        known = all_known(process.opened.context)
        assert known.gone() == [], when
        assert known.belonging is None or known.belonging.pending is None, when
        for each in [*known.objects.values()]:
            if each.state != "open":
                process.pools.delete_pool(each.type, force=True)
        known = all_known(process.opened.context)
        for name, resource in known.resources.items():
            pool = resource.member.pool
            assert pool is None or pool in known.pools.types, f"{when}: {name}"
        judge = MembershipJudge().take(self.api.history)
        assert judge.violations == [], when


def requests_of(act: Act, clock: ManualClock) -> int:
    world = World(clock)
    before = len(world.api.asked)
    with contextlib.suppress(LeaseError):
        act(world.process())
    return len(world.api.asked) - before


# In part: every so many-th request of the first, and of the second, others with each pair.
FIRST, SECOND = (1, 1) if EVERY_KILL else (17, 29)
pytestmark = [
    pytest.mark.timeout(0 if EVERY_KILL else 900),
    pytest.mark.usefixtures("nobody_is_waited_for"),
]


@pytest.mark.parametrize("first", ACTS)
def test_no_name_is_ever_where_it_may_not_be(first: str, manual_clock: ManualClock) -> None:
    runs = 0
    long = requests_of(ACTS[first], manual_clock)
    for number, second in enumerate(ACTS):
        for at in range((number * 3) % FIRST, long, FIRST):
            for way in WAYS:
                for killed_at in (None, *range((number + at) % SECOND, 1000, SECOND)):
                    when = f"{first} {way} at {at}, {second} is killed at {killed_at}"
                    if run(manual_clock, first, at, way, second, killed_at, when):
                        break
                    runs += 1
    print(f"{first}: {runs} runs")
    assert runs > 3


def run(
    clock: ManualClock,
    first: str,
    at: int,
    way: str,
    second: str,
    killed_at: int | None,
    when: str,
) -> bool:
    """Have one come while the other is at it; returns whether that came to its end.

    Args:
        clock: Of both.
        first: What one does.
        at: At which of its requests the other comes.
        way: What happens to it then.
        second: What the other does.
        killed_at: At which request that is killed; None for none.
        when: All of that for people.
    """
    world = World(clock)
    ends: list[bool] = []

    def come() -> None:
        where = 1_000_000 if killed_at is None else killed_at
        ends.append(world.act(ACTS[second], where, "is killed", lambda: None))

    assert world.act(ACTS[first], at, way, come), when
    world.check(when)
    return killed_at is not None and ends == [False]
