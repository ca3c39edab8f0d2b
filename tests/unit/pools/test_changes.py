"""Pools become what definitions say: the plan, and its carrying out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from leasectl.engines.facts import Pool, PoolSettings, Resource
from leasectl.engines.local.members import LocalMembers
from leasectl.engines.local.pools import LocalPools
from leasectl.engines.local.store import LocalStore
from leasectl.engines.pool_admin import Decide, Members, PoolAdmin, Updated
from leasectl.engines.rules.membership import Lifetime, Member, Pools, join, set_default
from leasectl.errors import InvalidRequest, NotAllowed
from leasectl.model import Claimant, Lease, Request
from leasectl.pools.changes import NewDefault, PoolChange, carry_out, change_settings, plan
from leasectl.pools.definitions import (
    CountedPool,
    DefaultChange,
    Definition,
    Expected,
    NamedPool,
)
from leasectl.pools.settings import USUAL_GRACE_SECONDS, SettingsChange, changed
from leasectl.system.clock import Clock
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore

LEASE = Lease("", 1, 1, 1, "somebody", 0.0, 0.0, None, 0, ())


def pool(pool_type: str, *names: str, held: Sequence[str] = ()) -> Pool:
    return Pool(
        pool_type, tuple(Resource(n, LEASE if n in held else None) for n in sorted(names)), ()
    )


def planned(definition: Definition, *pools: Pool) -> PoolChange:
    (change,) = plan([definition], pools)
    return change


class TestNamedPools:
    def test_a_pool_that_isnt_there_is_made(self) -> None:
        assert planned(NamedPool("T", ("b", "a"))) == PoolChange("T", new=True, added=("b", "a"))

    def test_missing_ones_are_added_free_ones_removed_and_held_ones_stay(self) -> None:
        change = planned(NamedPool("T", ("a", "n")), pool("T", "a", "b", "c", held=["a", "c"]))
        assert change == PoolChange("T", added=("n",), removed=("b",), staying=("c",))

    def test_a_name_of_another_pool_is_refused(self) -> None:
        said = (
            'puts "a" into pool "T", but it is in pool "U"; .*: leasectl pool move --names a --to T'
        )
        with pytest.raises(InvalidRequest, match=said):
            planned(NamedPool("T", ("a",)), pool("U", "a"))

    def test_a_name_that_another_pool_gives_up_moves(self) -> None:
        wanted: list[Definition] = [NamedPool("T", ("a", "b")), NamedPool("U", ("c",))]
        assert plan(wanted, [pool("T", "a"), pool("U", "b", "c")]) == (
            PoolChange("T", moved=("b",)),
            PoolChange("U", removed=("b",)),
        )

    def test_a_held_name_that_another_pool_gives_up_is_awaited(self) -> None:
        wanted: list[Definition] = [NamedPool("T", ("a", "b")), NamedPool("U", ("c",))]
        assert plan(wanted, [pool("T", "a"), pool("U", "b", "c", held=["b"])]) == (
            PoolChange("T", awaited=("b",)),
            PoolChange("U", staying=("b",)),
        )


class TestCountedPools:
    def test_a_pool_is_made_as_small_as_it_may_be(self) -> None:
        change = planned(CountedPool("T", 2, 5))
        assert change == PoolChange("T", new=True, added=("T--00", "T--01"))

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_a_pool_within_its_limits_is_left_alone(self, count: int) -> None:
        names = [f"any-{number}" for number in range(count)]
        assert planned(CountedPool("T", 2, 5), pool("T", *names)) == PoolChange("T")

    def test_the_highest_free_numbers_go_first(self) -> None:
        now = pool("T", "T--98", "T--99", "T--100", "T--101", held=["T--101"])
        assert planned(CountedPool("T", 1, 2), now).removed == ("T--99", "T--100")

    def test_held_ones_stay_beyond_the_limit(self) -> None:
        now = pool("T", "T--00", "T--01", "T--02", held=["T--01", "T--02"])
        change = planned(CountedPool("T", 1, 1), now)
        assert change == PoolChange("T", removed=("T--00",), staying=("T--02",))

    def test_a_number_that_another_pool_has_or_is_to_have_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match='"T--00" into pool "T", but it is in pool "U"; '):
            planned(CountedPool("T", 1, 1), pool("U", "T--00"))
        with pytest.raises(InvalidRequest, match='the file lists "T--00" in pool "U"'):
            plan([CountedPool("T", 1, 1), NamedPool("U", ("T--00",))], [])


class TestMemberships:
    """What is known of names beside the pools that they are in."""

    def test_a_name_that_is_expected_elsewhere_is_refused_with_its_place(self) -> None:
        wanted, known = NamedPool("T", ("a", "b")), [Member("b", expected="U")]
        said = '^list:7: "b" is listed in pool "T", but is expected in pool "U"; .* --list$'
        with pytest.raises(NotAllowed, match=said):
            plan([wanted], [], known=known, places={"a": "list:6", "b": "list:7"})

    def test_what_has_joined_for_a_time_is_left_alone(self) -> None:
        lives = Lifetime(ttl_seconds=60.0)
        known = [Member("b", "T", lifetime=lives), Member("u", "U", lifetime=lives)]
        pools = [pool("T", "a", "b", "c"), pool("U", "u")]
        wanted: list[Definition] = [NamedPool("T", ("a", "u"))]
        assert plan(wanted, pools, known=known) == (
            PoolChange("T", removed=("c",), joined=("b", "u"), joined_elsewhere={"u": "U"}),
        )

    def test_nor_does_it_go_where_there_are_too_many(self) -> None:
        known = [Member("T--02", "T", lifetime=Lifetime(ttl_seconds=60.0))]
        now = pool("T", "T--00", "T--01", "T--02", held=["T--00"])
        assert plan([CountedPool("T", 0, 1)], [now], known=known) == (
            PoolChange("T", removed=("T--01",), joined=("T--02",)),
        )

    @pytest.mark.parametrize(
        ("wanted", "now", "change"),
        [
            (DefaultChange(True), Pools(frozenset()), NewDefault("T", USUAL_GRACE_SECONDS)),
            (DefaultChange(True), Pools(frozenset(), "T", 5.0), None),
            (DefaultChange(True, 9.0), Pools(frozenset(), "T", 5.0), NewDefault("T", 9.0)),
            (DefaultChange(True, 9.0), Pools(frozenset(), "U", 9.0), NewDefault("T", 9.0)),
            (DefaultChange(False), Pools(frozenset(), "U", 9.0), None),
            (DefaultChange(False), Pools(frozenset(), "T", 9.0), NewDefault(None, 0.0)),
            (DefaultChange(), Pools(frozenset(), "T", 9.0), None),
        ],
    )
    def test_a_pool_is_the_default_or_no_more(
        self, wanted: DefaultChange, now: Pools, change: NewDefault | None
    ) -> None:
        definition = NamedPool("T", ("a",), default=wanted)
        (planned,) = plan([definition], [pool("T", "a")], belonging=now)
        assert planned == PoolChange("T", default=change)


class TestExpectations:
    KNOWN = (Member("n", expected="T"), Member("u", "U"), Member("d", "D", by_default=True))
    BELONGING = Pools(frozenset("TUD"), "D", patterns={"t-*": "T", "u-*": "U"})

    def planned(self, *definitions: Definition) -> tuple[PoolChange, ...]:
        pools = [pool("T"), pool("U", "u"), pool("D", "d")]
        return plan(definitions, pools, known=self.KNOWN, belonging=self.BELONGING)

    def test_are_those_of_the_file_and_no_others(self) -> None:
        wanted = CountedPool("T", 0, 9, expected=Expected(("m", "d"), ("t-*", "x-*")))
        assert self.planned(wanted) == (
            PoolChange("T", expected=Expected(("m", "d"), ("x-*",)), dropped=Expected(("n",), ())),
        )

    def test_may_go_from_pool_to_pool(self) -> None:
        assert self.planned(
            CountedPool("T", 0, 9, expected=Expected((), ("u-*",))),
            CountedPool("U", 0, 9, expected=Expected(("n",), ())),
        ) == (
            PoolChange("T", expected=Expected((), ("u-*",)), dropped=Expected(("n",), ("t-*",))),
            PoolChange("U", expected=Expected(("n",), ()), dropped=Expected((), ("u-*",))),
        )

    @pytest.mark.parametrize(
        ("expected", "said"),
        [
            (Expected(("n",), ()), 'is expected in pool "T"'),
            (Expected((), ("t-*",)), 'are expected in pool "T" already'),
            (Expected(("u",), ()), 'is in pool "U".*move --names u --to D$'),
        ],
    )
    def test_that_another_pool_has_are_refused(self, expected: Expected, said: str) -> None:
        with pytest.raises(NotAllowed, match=said):
            self.planned(CountedPool("D", 0, 9, expected=expected))

    def test_are_what_names_of_the_file_are_compared_with(self) -> None:
        wanted = NamedPool("U", ("u", "n", "t-1"))
        with pytest.raises(NotAllowed, match='"n" is listed in pool "U"'):
            self.planned(wanted)
        self.planned(CountedPool("T", 0, 9, expected=Expected()), wanted)


class OthersToo(LocalPools):
    """Whenever somebody has looked, somebody else changes what isn't as it is to be, in turn.

    Args:
        store: Of the pools.
        changes: What others change.
    """

    def __init__(self, store: MadeUpStore, *changes: SettingsChange) -> None:
        super().__init__(LocalStore(store.state, lost=store.lost, clock=store.clock), "")
        self._changes = list(changes)

    def pools(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        found = super().pools(pool_type)
        if self._changes:
            (before,) = (each.settings for each in found)
            super().change_settings("T", changed(before, self._changes.pop(0)))
        return found


class TestTwoAtOnce:
    def test_of_changed_settings_none_is_lost(self) -> None:
        store = MadeUpStore(Clock())
        store.pools.create_pool("T", ["T--00"])
        pools = OthersToo(store, SettingsChange(pace_seconds=20.0), SettingsChange(burst=2))
        seen, after = change_settings(pools, "T", SettingsChange(aging_seconds=1800.0))
        assert (seen, after) == (PoolSettings(20.0, 2, 0.0), PoolSettings(20.0, 2, 1800.0))
        assert pools.pools("T")[0].settings == after


class TestCarryingOut:
    @pytest.fixture
    def store(self) -> MadeUpStore:
        return MadeUpStore(Clock(), self.nobody_loses)

    @pytest.fixture
    def pools(self, store: MadeUpStore) -> PoolAdmin:
        return store.pools

    @pytest.fixture
    def members(self, store: MadeUpStore) -> Members:
        return store.members

    @staticmethod
    def nobody_loses(owner: str, names: Sequence[str]) -> None:
        raise AssertionError(f"{owner} lost {names}")

    def hold(self, store: MadeUpStore, name: str, pool_type: str = "T") -> None:
        engine = MadeUpEngine(store)
        claimant = Claimant("owner", "owner@host", Request(pool_type, name=name), None)
        waiter = engine.waiter(claimant, until=None)
        waiter.enqueue()
        assert waiter.claim().leases

    def names(self, pools: PoolAdmin) -> dict[str, list[str]]:
        return {each.type: [r.name for r in each.resources] for each in pools.pools()}

    def test_it_makes_pools_as_planned_and_then_nothing_is_left_to_do(
        self, pools: PoolAdmin, members: Members
    ) -> None:
        pools.create_pool("T", ["a", "b"])
        pools.create_pool("U", ["c", "d"])
        pools.create_pool("V", ["v"])
        wanted: list[Definition] = [
            NamedPool("T", ("a", "c", "n")),
            NamedPool("U", ("d",)),
            CountedPool("W", 1, 1),
        ]
        changes = plan(wanted, pools.pools())
        assert carry_out(changes, pools, members) == changes
        assert self.names(pools) == {
            "T": ["a", "c", "n"],
            "U": ["d"],
            "V": ["v"],
            "W": ["W--00"],
        }
        assert plan(wanted, pools.pools()) == tuple(PoolChange(each.type) for each in wanted)

    def test_what_somebody_else_has_made_the_default_since_stays_that(
        self, pools: PoolAdmin, members: Members
    ) -> None:
        for each in ("T", "U", "V"):
            pools.create_pool(each, [each.lower()])
        no_more = PoolChange("T", default=NewDefault(None, 0.0))
        for now, after in (("U", "U"), ("T", None)):
            members.change_belonging(partial(set_default, pool_type=now, grace_seconds=5.0))
            carry_out([no_more], pools, members)
            assert members.belonging().default == after
        both = [PoolChange("V", default=NewDefault("V", 3.0)), no_more]
        members.change_belonging(partial(set_default, pool_type="T", grace_seconds=5.0))
        carry_out(both, pools, members)
        assert members.belonging().default == "V"

    def test_what_was_acquired_since_the_plan_stays(
        self, store: MadeUpStore, pools: PoolAdmin, members: Members
    ) -> None:
        pools.create_pool("T", ["a", "b", "c"])
        changes = plan([NamedPool("T", ("a",)), NamedPool("U", ("c",))], pools.pools())
        self.hold(store, "c")
        assert carry_out(changes, pools, members) == (
            PoolChange("T", removed=("b",), staying=("c",)),
            PoolChange("U", new=True, awaited=("c",)),
        )
        assert self.names(pools) == {"T": ["a", "c"], "U": []}

    def test_what_has_joined_for_a_time_since_the_plan_stays(
        self, pools: PoolAdmin, members: Members
    ) -> None:
        pools.create_pool("T", ["a", "b", "c"])
        changes = plan([NamedPool("T", ("a",)), NamedPool("U", ("c",))], pools.pools())
        for_a_time = Lifetime(ttl_seconds=600.0)
        members.update(["b", "c"], lambda m, p: join(m, "T", p, lifetime=for_a_time))
        assert carry_out(changes, pools, members) == (
            PoolChange("T", staying=("b", "c")),
            PoolChange("U", new=True, awaited=("c",)),
        )
        assert self.names(pools) == {"T": ["a", "b", "c"], "U": []}

    def test_what_moves_is_at_every_step_in_a_pool(
        self, store: MadeUpStore, pools: PoolAdmin
    ) -> None:
        pools.create_pool("T", ["a", "b"])
        pools.create_pool("U", ["u"])
        members = _LookedAt(store)
        wanted: list[Definition] = [NamedPool("U", ("u", "b")), NamedPool("T", ("a",))]
        carry_out(plan(wanted, pools.pools()), pools, members)
        assert self.names(pools) == {"T": ["a"], "U": ["b", "u"]}
        assert members.updates == [["b"]]


class _LookedAt(LocalMembers):
    """Notes of which names is written at once."""

    def __init__(self, store: MadeUpStore) -> None:
        super().__init__(LocalStore(store.state, lost=store.lost, clock=store.clock), "")
        self.updates: list[list[str]] = []

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        self.updates.append(list(names))
        return super().update(names, decide, claimant=claimant)


class TestProperties:
    EU = (("region", "eu"),)
    US = (("region", "us"),)

    def pool(self, pool_type: str, **regions: str) -> Pool:
        """A pool of resources with a region each, or none."""
        found = [
            Resource(n, member=Member(n, pool_type, properties=(("region", r),)) if r else None)
            for n, r in regions.items()
        ]
        return Pool(pool_type, tuple(found), ())

    def test_that_are_so_already_are_left_alone(self) -> None:
        wanted = NamedPool("T", ("a", "b", "c"), properties=dict.fromkeys("abc", self.EU))
        change = planned(wanted, self.pool("T", a="eu", b="us"))
        assert change == PoolChange("T", added=("c",), properties={"b": self.EU, "c": self.EU})

    def test_of_a_number_are_those_of_all_that_stay_or_come(self) -> None:
        there = self.pool("T", **{"T--00": "eu", "T--01": "us", "T--02": ""})
        more = planned(CountedPool("T", 4, 4, properties=self.EU), there)
        assert more.added == ("T--03",)
        assert more.properties == dict.fromkeys(["T--01", "T--02", "T--03"], self.EU)
        less = planned(CountedPool("T", 0, 2, properties=self.US), there)
        assert (less.removed, less.properties) == (("T--02",), {"T--00": self.US})

    def test_come_with_the_names(self) -> None:
        store = MadeUpStore(Clock())
        pools, members = store.pools, store.members
        pools.create_pool("U", ["m", "u"])
        seen: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        update = members.update

        def watched(names: Sequence[str], decide: Decide) -> Updated:
            done = update(names, decide)
            seen.extend((each.name, each.properties) for each in done.after)
            return done

        members.update = watched  # type: ignore[method-assign,assignment]
        definitions: list[Definition] = [
            NamedPool("T", ("a", "b", "m"), properties={"a": self.EU, "m": self.US}),
            NamedPool("U", ("u",)),
        ]
        carry_out(plan(definitions, pools.pools()), pools, members)
        assert seen == [("a", self.EU), ("m", self.US)]
        (pool,) = pools.pools("T")
        assert [(each.name, each.member and each.member.properties) for each in pool.resources] == [
            ("a", self.EU),
            ("b", None),
            ("m", self.US),
        ]
