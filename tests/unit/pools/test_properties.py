"""Properties as they are to be, and put at resources."""

from __future__ import annotations

import pytest

from leasectl.engines.rules.membership import Properties
from leasectl.errors import InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.model import Claimant, Request
from leasectl.pools.properties import (
    NO_CHANGE,
    add_resources,
    change_properties,
    create_pool,
    parse_change,
    put_properties,
)
from leasectl.system.clock import Clock
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore

EU = parse_change(["region=eu"])


class Store:
    """Pools in memory, and what is in them."""

    def __init__(self) -> None:
        store = MadeUpStore(Clock())
        self.engine = MadeUpEngine(store)
        self.pools, self.members = store.pools, store.members

    def properties(self, pool_type: str) -> dict[str, Properties]:
        (pool,) = self.pools.pools(pool_type)
        return {each.name: each.member.properties if each.member else () for each in pool.resources}


@pytest.fixture
def store() -> Store:
    return Store()


class TestChange:
    def test_puts_and_drops_and_keeps_the_rest(self) -> None:
        change = parse_change(["b=2", "c-", "a="])
        assert change.of("x", (("b", "1"), ("c", "3"), ("d", "4"))) == (
            ("a", ""),
            ("b", "2"),
            ("d", "4"),
        )
        assert change.describe() == "a=, b=2, no c"

    def test_of_a_key_that_ends_like_a_drop_is_read_in_one_way(self) -> None:
        assert parse_change(["a-=1"]).put == (("a-", "1"),)
        assert parse_change(["a--"]).dropped == {"a-"}

    @pytest.mark.parametrize(
        ("texts", "said"),
        [
            (["a"], '--property "a": write it as KEY=VALUE, or KEY- to remove it'),
            (["-"], 'property "" is not allowed'),
            (["=1"], 'property "" is not allowed'),
            (["a!=1"], 'property "a!" is not allowed'),
            (["a=1", "a=2"], '"a" is named twice'),
            (["a=1", "a-"], '"a" is named twice'),
            (["a-", "a-"], '"a" is named twice'),
            (["a=\n"], "one line of printable text"),
            ([f"a={'x' * 1025}"], "has 1025 bytes"),
            ([f"k{n}=1" for n in range(33)], "33 properties; at most 32"),
        ],
    )
    def test_that_is_none_is_refused(self, texts: list[str], said: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            parse_change(texts)
        assert said in str(refused.value)

    def test_to_more_than_there_may_be_is_refused(self) -> None:
        before = tuple((f"k{n}", "1") for n in range(32))
        assert len(parse_change(["k0=2"]).of("x", before)) == 32
        with pytest.raises(InvalidRequest, match='"x" would have 33 properties; at most 32'):
            parse_change(["more=1"]).of("x", before)
        assert len(parse_change(["more=1", "k0-"]).of("x", before)) == 32


class TestNewPool:
    def test_is_not_made_where_a_name_is_taken(self, store: Store) -> None:
        store.pools.create_pool("U", ["b"])
        with pytest.raises(NotAllowed, match='"b" is in pool "U"'):
            create_pool(store.pools, store.members, "T", ["a", "b"], EU)
        assert [pool.type for pool in store.pools.pools()] == ["U"]
        assert not [each for each in store.members.members(["a"]) if each.is_known]

    def test_that_fails_half_way_is_taken_away_again(self, store: Store) -> None:
        create = store.pools.create_pool

        def overtaken(*args: object, **more: object) -> None:
            create(*args, **more)  # type: ignore[arg-type]
            create("U", ["b"])

        store.pools.create_pool = overtaken  # type: ignore[method-assign]
        with pytest.raises(NotAllowed):
            create_pool(store.pools, store.members, "T", ["a", "b"], EU)
        assert [pool.type for pool in store.pools.pools()] == ["U"]

    def test_that_fails_half_way_keeps_what_others_have_added(self, store: Store) -> None:
        create = store.pools.create_pool

        def overtaken(*args: object, **more: object) -> None:
            create(*args, **more)  # type: ignore[arg-type]
            add_resources(store.members, "T", ["m"], NO_CHANGE)
            create("U", ["b"])

        store.pools.create_pool = overtaken  # type: ignore[method-assign]
        with pytest.raises(NotAllowed):
            create_pool(store.pools, store.members, "T", ["a", "b"], EU)
        assert "m" in [each.name for each in store.pools.pools("T")[0].resources]

    def test_is_refused_where_there_is_one(self, store: Store) -> None:
        store.pools.create_pool("T", ["a"])
        with pytest.raises(LeaseError):
            create_pool(store.pools, store.members, "T", ["b"], EU)
        assert store.properties("T") == {"a": ()}


class TestAdded:
    def test_are_what_they_are_to_be(self, store: Store) -> None:
        store.pools.create_pool("T", ["a"])
        add_resources(store.members, "T", ["b"], EU)
        assert store.properties("T") == {"a": (), "b": EU.put}

    def test_to_no_pool_are_refused(self, store: Store) -> None:
        with pytest.raises(NotFound):
            add_resources(store.members, "T", ["a"], EU)


class TestChanged:
    def test_are_those_that_were_not_so(self, store: Store) -> None:
        create_pool(store.pools, store.members, "T", ["a"], EU)
        add_resources(store.members, "T", ["b"], parse_change(["region=us"]))
        assert change_properties(store.members, "T", ["a", "b"], EU) == ("b",)
        assert store.properties("T") == {"a": EU.put, "b": EU.put}

    def test_are_all_or_none(self, store: Store) -> None:
        store.pools.create_pool("T", ["a"])
        with pytest.raises(NotFound, match='no resource "x" in pool "T"'):
            change_properties(store.members, "T", ["a", "x"], EU)
        assert store.properties("T") == {"a": ()}
        assert change_properties(store.members, "T", ["a", "x"], EU, as_seen=True) == ("a",)

    def test_while_they_are_held_leaves_the_lease_alone(self, store: Store) -> None:
        store.pools.create_pool("T", ["a"])
        waiter = store.engine.waiter(Claimant("k", "somebody", Request("T")), until=None)
        waiter.enqueue()
        leases = waiter.claim().leases
        change_properties(store.members, "T", ["a"], EU)
        (pool,) = store.pools.pools("T")
        assert [each.lease for each in pool.resources] == list(leases or ())
        store.engine.free("k", None)
        assert store.properties("T") == {"a": EU.put}

    def test_by_name_leave_those_alone_that_have_gone(self, store: Store) -> None:
        store.pools.create_pool("T", ["a"])
        store.pools.create_pool("U", ["b"])
        put_properties(store.members, "T", {"a": EU.put, "b": EU.put, "gone": EU.put})
        assert (store.properties("T"), store.properties("U")) == ({"a": EU.put}, {"b": ()})
