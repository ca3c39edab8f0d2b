"""Of every fact and every step: a name is where it belongs, or stays, and who loses is told."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Callable

import pytest

from leasectl.engines.rules.membership import (
    Lifetime,
    Member,
    Pools,
    add,
    after_lifetime,
    after_release,
    belongs_to,
    claimed_by_pattern,
    cordon,
    expect,
    expect_nothing,
    expect_pattern,
    join,
    leave,
    move,
    remove,
    set_default,
)
from leasectl.errors import NotAllowed, NotFound
from leasectl.text.naming import reserved_type

Step = Callable[[Member], Member]

WORLDS = (
    Pools(frozenset("ABD"), "D"),
    Pools(frozenset("ABD"), "D", patterns={"n*": "A"}),
    Pools(frozenset("ABD"), patterns={"n*": "B", "n-1": "A"}),
)
MINUTE = Lifetime(ttl_seconds=60.0)


def members() -> Iterator[Member]:
    """Every fact that there can be of a name, and some that can't come of one another."""
    for expected in (None, "A", "B"):
        yield Member("n-1", expected=expected)
        facts = product("ABD", (False, True), (None, "h"), (False, True), (None, "B"), (0, 1))
        for pool, by_default, holder, cordoned, moves_to, leaves in facts:
            if by_default and (pool != "D" or (expected is not None and holder is None)):
                continue
            if (moves_to or leaves) and holder is None:
                continue  # that is done as it is released
            member = Member("n-1", pool, expected, by_default, holder, cordoned, moves_to)
            yield member._replace(leaves=bool(leaves), properties=(("region", "eu"),))
            yield member._replace(leaves=bool(leaves), lifetime=MINUTE)


def claims(pools: Pools, to: str) -> dict[str, Step]:
    """What puts a name into a pool."""
    return {
        "add": partial(add, to=to, pools=pools),
        "join": partial(join, to=to, pools=pools, lifetime=None),
        "join for a time": partial(join, to=to, pools=pools, lifetime=MINUTE),
        "move": partial(move, to=to, pools=pools, when_free=False),
        "move when free": partial(move, to=to, pools=pools, when_free=True),
        "expect": partial(expect, to=to, pools=pools),
    }


def others() -> dict[str, Step]:
    return {
        "leave": partial(leave, pool="A"),
        "remove": partial(remove, pool="A", force=False),
        "remove by force": partial(remove, pool="A", force=True),
        "cordon": partial(cordon, is_cordoned=True),
        "uncordon": partial(cordon, is_cordoned=False),
        "expect nothing": expect_nothing,
        "after release": after_release,
        "after lifetime": after_lifetime,
    }


CASES = [
    (world, to, what, step)
    for world in WORLDS
    for to in "ABD"
    for what, step in {**claims(world, to), **others()}.items()
]


@pytest.mark.parametrize(("pools", "to", "what", "step"), CASES)
def test_whatever_is_done_to_whatever_there_is(
    pools: Pools, to: str, what: str, step: Step
) -> None:
    for member in members():
        try:
            after = step(member)
        except NotAllowed as error:
            winners = {member.pool, belongs_to(member, pools), member.expected, member.holder}
            winners.add(member.moves_to)
            assert any(f'"{each}"' in str(error) or f" {each};" in str(error) for each in winners)
            continue
        except NotFound:
            assert member.pool != "A" if what in others() else member.pool is None
            continue
        check(member, after, what)
        if what in claims(pools, to):
            if what != "expect" or (after.pool is not None and not after.leaves):
                assert to in (after.pool, after.moves_to)
            assert belongs_to(after, pools) in (None, to)
        if not what.startswith(("remove", "leave")):
            assert step(after)._replace(joined=after.joined) == after


def check(before: Member, after: Member, what: str) -> None:
    """What holds whatever was done."""
    assert after.name == before.name
    if not what.startswith("expect"):
        assert after.expected == before.expected
    if before.holder is not None and what not in ("remove by force", "after release"):
        assert (after.pool, after.holder) == (before.pool, before.holder)
    if after.pool is None:
        assert after == Member(after.name, expected=after.expected)
    if after.pool is not None and after.pool != before.pool:
        assert not after.moves_to
        assert not after.leaves
        assert after.properties == before.properties
    if after.by_default and what != "add":
        assert before.by_default
    if what.startswith(("cordon", "uncordon")):
        assert after == before._replace(cordoned=what == "cordon")


NAME = Member("n-1")
POOLS = WORLDS[0]


class TestTheDefaultPool:
    def test_keeps_what_nobody_else_claims(self) -> None:
        assert add(NAME, "D", POOLS).by_default

    @pytest.mark.parametrize("what", list(claims(POOLS, "A")))
    def test_gives_it_to_whoever_claims_it(self, what: str) -> None:
        after = claims(POOLS, "A")[what](add(NAME, "D", POOLS))
        assert (after.pool, after.by_default) == ("A", False)

    @pytest.mark.parametrize("what", ["add", "join"])
    def test_keeps_what_is_held(self, what: str) -> None:
        held = add(NAME, "D", POOLS)._replace(holder="h")
        with pytest.raises(NotAllowed, match='"D"'):
            claims(POOLS, "A")[what](held)

    @pytest.mark.parametrize("what", ["join", "move", "expect"])
    def test_is_as_good_as_any_to_who_means_it(self, what: str) -> None:
        mine = claims(POOLS, "D")[what](add(NAME, "D", POOLS))
        with pytest.raises(NotAllowed, match='"D"'):
            add(mine, "A", POOLS)

    def test_takes_what_belongs_to_it_for_good(self) -> None:
        assert not add(expect(NAME, "D", POOLS), "D", POOLS).by_default


class TestExpectations:
    @pytest.mark.parametrize(
        ("patterns", "expected"),
        [
            ({"n*": "A", "n-*": "B"}, "B"),
            ({"n-1": "A", "n-*": "B"}, "A"),
            ({"m*": "A"}, None),
            ({}, None),
        ],
    )
    def test_of_patterns_the_longest_says(
        self, patterns: dict[str, str], expected: str | None
    ) -> None:
        assert belongs_to(NAME, POOLS._replace(patterns=patterns)) == expected

    def test_that_of_the_name_is_stronger_than_any_pattern(self) -> None:
        pools = POOLS._replace(patterns={"n-1*": "A"})
        assert add(expect(NAME, "B", pools), "B", pools).pool == "B"

    def test_of_patterns_say_nothing_of_names_that_work_is_done_under(self) -> None:
        pools = POOLS._replace(patterns={"*": "A"})
        assert belongs_to(Member(reserved_type("0" * 64)), pools) is None

    def test_are_refused_where_a_release_takes_the_name_away(self) -> None:
        leaving = move(Member("n-1", "A", holder="h"), "B", POOLS, when_free=True)
        with pytest.raises(NotAllowed, match='to move to pool "B"'):
            expect(leaving, "A", POOLS)
        assert expect(move(leaving, "A", POOLS, when_free=True), "A", POOLS).expected == "A"

    @pytest.mark.parametrize("holder", [None, "h"])
    @pytest.mark.parametrize("pattern", [{}, {"n-*": "B"}])
    def test_of_names_take_what_nobody_claimed_as_it_is_free(
        self, pattern: dict[str, str], holder: str | None
    ) -> None:
        pools = POOLS._replace(patterns=pattern)
        unclaimed = claimed_by_pattern(add(NAME, "D", POOLS)._replace(holder=holder), pools)
        if unclaimed.pool != "D":
            return  # the pattern has moved it, so it is claimed
        after = expect(unclaimed, "A", pools)
        assert after.pool == ("D" if holder else "A")
        assert after_release(after) == Member("n-1", "A", expected="A")
        assert expect(after, "A", pools) == after
        leaving = Member("n-1", "D", by_default=True, holder="h", leaves=True)
        assert expect(leaving, "A", pools) == leaving._replace(expected="A")
        assert after_release(expect(leaving, "A", pools)) == Member("n-1", expected="A")

    def test_of_names_are_refused_where_somebody_has_it_move_elsewhere(self) -> None:
        unclaimed = add(NAME, "D", POOLS)._replace(holder="h")
        moving = move(unclaimed, "B", POOLS, when_free=True)
        with pytest.raises(NotAllowed, match=r'to move to pool "B".*--to D$'):
            expect(moving, "A", POOLS)

    @pytest.mark.parametrize("holder", [None, "h"])
    def test_of_patterns_take_what_nobody_claimed_as_it_is_free(self, holder: str | None) -> None:
        unclaimed = add(NAME, "D", POOLS)._replace(holder=holder)
        after = claimed_by_pattern(unclaimed, POOLS._replace(patterns={"n-*": "A"}))
        assert after == (unclaimed._replace(moves_to="A") if holder else Member("n-1", "A"))
        assert after_release(after) == Member("n-1", "A")
        leaving = unclaimed._replace(leaves=True)
        if holder:
            assert claimed_by_pattern(leaving, POOLS._replace(patterns={"n-*": "A"})) == leaving
        assert claimed_by_pattern(unclaimed, POOLS) == unclaimed
        meant = Member("n-1", "D", holder=holder)
        assert claimed_by_pattern(meant, POOLS._replace(patterns={"n-*": "A"})) == meant

    def test_outlive_everything_but_themselves(self) -> None:
        member = expect(NAME, "A", POOLS)
        for step in (
            partial(join, to="A", pools=POOLS, lifetime=MINUTE),
            after_lifetime,
            partial(add, to="A", pools=POOLS),
            partial(leave, pool="A"),
        ):
            member = step(member)
        assert member == Member("n-1", expected="A")
        with pytest.raises(NotAllowed, match='is expected in pool "A"'):
            add(member, "B", POOLS)
        assert add(expect_nothing(member), "B", POOLS).pool == "B"


class TestThoseWhoAreHeld:
    HELD = Member("n-1", "A", holder="h", lifetime=MINUTE)

    def test_go_with_their_release(self) -> None:
        leaving = after_lifetime(self.HELD)
        assert (leaving.pool, leaving.takes_holders) == ("A", False)
        assert after_release(leaving) == NAME

    def test_stay_if_they_come_again_meanwhile(self) -> None:
        again = join(after_lifetime(self.HELD), "A", POOLS, lifetime=MINUTE)
        assert after_release(again) == self.HELD._replace(holder=None, joined=1)

    def test_move_with_their_release(self) -> None:
        moving = move(self.HELD, "B", POOLS, when_free=True)
        assert not moving.takes_holders
        assert after_release(moving) == Member("n-1", "B")

    def test_stay_if_they_are_moved_back_meanwhile(self) -> None:
        moving = move(self.HELD, "B", POOLS, when_free=True)
        assert move(moving, "A", POOLS, when_free=True) == self.HELD


class TestPatterns:
    def test_are_said_once_and_taken_back(self) -> None:
        once = expect_pattern(POOLS, "n*", "A")
        assert expect_pattern(once, "n*", "A") == once
        with pytest.raises(NotAllowed, match='"A"'):
            expect_pattern(once, "n*", "B")
        assert expect_pattern(once, "n*", None) == POOLS
        with pytest.raises(NotFound, match=r"n\*"):
            expect_pattern(POOLS, "n*", None)

    def test_say_a_pool_that_is_there(self) -> None:
        with pytest.raises(NotFound, match='"C"'):
            expect_pattern(POOLS, "n*", "C")


def test_a_default_pool_is_there_or_none() -> None:
    with pytest.raises(NotFound, match='"C"'):
        set_default(POOLS, "C", 60.0)
    assert set_default(POOLS, "A", 60.0) == POOLS._replace(default="A", grace_seconds=60.0)
    assert set_default(set_default(POOLS, "A", 60.0), None, 0.0).default is None
