"""Memberships in etcd: what is lost, killed, left by others, or too much; against a real server."""

from __future__ import annotations

import json
import threading
from typing import Callable

import pytest

from leasectl.engines.etcd.gateway.requests import delete, put, read, read_all
from leasectl.engines.etcd.members.check import Disorder
from leasectl.engines.etcd.members.members import EtcdMembers
from leasectl.engines.membership import (
    Lifetime,
    Member,
    add,
    after_lifetime,
    cordon,
    expect,
    join,
    leave,
    move,
    remove,
    set_default,
)
from leasectl.engines.pool_admin import Decide
from leasectl.errors import BackendUnreachable, NotAllowed
from leasectl.model import Claimant, Request
from tests.kit.etcd.access import NAMES, SHORT, Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.killing import EVERY_KILL, Victim, each_answer_lost
from tests.kit.relay import Relay
from tests.kit.waits import eventually

EU = (("region", "eu"),)
IN_ORDER = Disorder()


def members_of(access: Access) -> EtcdMembers:
    return access.pools.members


def to_move(pool_type: str, *, when_free: bool = False) -> Decide:
    return lambda member, pools: move(member, pool_type, pools, when_free=when_free)


def to_add(pool_type: str) -> Decide:
    return lambda member, pools: add(member, pool_type, pools)


def to_join(pool_type: str, ttl: float | None = None) -> Decide:
    lifetime = None if ttl is None else Lifetime(ttl_seconds=ttl)
    return lambda member, pools: join(member, pool_type, pools, lifetime=lifetime)


def to_cordon(*, is_cordoned: bool = True) -> Decide:
    return lambda member, _: cordon(member, is_cordoned=is_cordoned)


def update(access: Access, decide: Decide, *names: str) -> tuple[Member, ...]:
    return members_of(access).update(names, decide).after


def join_held(access: Access, name: str, *, ttl: float | None = None) -> tuple[str, ...]:
    claimant = Claimant("joiner", "job/1/host/joiner", Request("U", name=name, ttl_seconds=ttl))
    joined = members_of(access).update([name], to_join("U"), claimant=claimant)
    return tuple(lease.name for lease in joined.leases)


def the(access: Access, name: str) -> Member:
    (member,) = members_of(access).members([name])
    return member


def in_pool(access: Access, pool_type: str) -> list[str]:
    return [each.name for each in access.pool(pool_type).resources]


def disorder(access: Access) -> Disorder:
    return members_of(access).check().find()


@pytest.fixture
def pools(store: Access) -> Access:
    """Two of them; one has nobody in it."""
    store.pools.create_pool("U", [])
    return store


def whole_story(access: Access) -> None:
    """All that may become of names, and what comes of each."""
    update(access, to_cordon(), "T--0")
    update(access, to_cordon(is_cordoned=False), "T--0")
    update(access, lambda member, _: member._replace(properties=EU), "T--0", "T--1")
    update(access, to_move("U"), "T--0", "T--1", "T--2")
    assert join_held(access, "n", ttl=60) == ("n",)
    update(access, to_move("T", when_free=True), "n")
    assert access.engine.free("joiner") == ("n",)
    update(access, lambda member, _: remove(member, "T", force=False), "n")
    update(access, lambda member, pools: expect(member, "U", pools), "n")
    update(access, to_join("U", 60), "n")
    update(access, lambda member, _: leave(member, "U"), "n")
    update(access, to_add("U"), "n")
    members_of(access).change_belonging(lambda pools: set_default(pools, "T", 0.0))


class TestLostAnswers:
    def test_whichever_is_lost_the_story_is_the_same(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        for losing in each_answer_lost(between, more_than=30, stride=1 if EVERY_KILL else 5):
            place = f"{prefix}/{losing.number}"
            direct = Access(etcd.endpoints, place)
            direct.pools.create_pool("T", NAMES)
            direct.pools.create_pool("U", [])
            told = direct.events.last_number()
            losing.begin()
            whole_story(Access([between.endpoint], place))
            assert disorder(direct) == IN_ORDER, losing.number
            assert (in_pool(direct, "T"), in_pool(direct, "U")) == (
                ["T--3"],
                ["T--0", "T--1", "T--2", "n"],
            ), losing.number
            assert members_of(direct).members(["T--0", "n"]) == (
                Member("T--0", "U", properties=EU),
                Member("n", "U", expected="U"),
            ), losing.number
            assert keys_left(direct) == [], losing.number
            events = [e for e in direct.events.read() if e.number > told]
            assert [(event.type, event.kind, event.reason) for event in events] == [
                ("T", "pool changed", "1 resource cordoned"),
                ("T", "pool changed", "1 resource uncordoned"),
                ("T", "pool changed", "2 resources with other properties"),
                ("T", "pool changed", "3 resources moved to U, removed"),
                ("U", "pool changed", "3 resources moved here from T, added"),
                ("U", "granted", ""),
                ("U", "pool changed", "1 resource added"),
                ("U", "pool changed", "1 resource to go to T when free"),
                ("U", "released", ""),
                ("U", "pool changed", "1 resource moved to T, removed"),
                ("T", "pool changed", "1 resource moved here from U, added"),
                ("T", "pool changed", "1 resource removed"),
                ("U", "pool changed", "1 resource expected"),
                ("U", "pool changed", "1 resource added"),
                ("U", "pool changed", "1 resource removed"),
                ("U", "pool changed", "1 resource added"),
                ("T", "pool changed", "the default pool, no grace; before: none"),
            ], losing.number


class TestKilled:
    """Whoever is killed at any of its requests, when it is done, leaves all of it or nothing."""

    def killed_at_each(
        self,
        etcd: EtcdServer,
        between: Relay,
        prefix: str,
        work: Callable[[Access], object],
        prepare: Callable[[Access], object] = lambda _: None,
    ) -> list[Access]:
        """One store for each request at which it was killed."""
        stores: list[Access] = []
        while True:
            store = Access(etcd.endpoints, f"{prefix}/{len(stores)}")
            store.pools.create_pool("T", NAMES)
            store.pools.create_pool("U", [])
            prepare(store)
            through = Access([between.endpoint], store.keys.prefix)
            victim = Victim(between, "after", fatal=len(stores) + 1)
            if not victim.run(lambda t=through: work(t)):  # type: ignore[misc]
                return stores
            stores.append(store)

    def test_moves_all_three_or_none(self, etcd: EtcdServer, between: Relay, prefix: str) -> None:
        stores = self.killed_at_each(
            etcd, between, prefix, lambda access: update(access, to_move("U"), *NAMES[:3])
        )
        assert len(stores) > 2
        found = {(tuple(in_pool(each, "T")), tuple(in_pool(each, "U"))) for each in stores}
        assert found == {(tuple(NAMES), ()), ((NAMES[3],), tuple(NAMES[:3]))}
        for store in stores:
            assert disorder(store) == IN_ORDER
            update(store, to_move("U"), *NAMES[:3])
            assert in_pool(store, "U") == NAMES[:3]

    def test_joins_and_holds_or_neither(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        stores = self.killed_at_each(
            etcd, between, prefix, lambda access: join_held(access, "n", ttl=SHORT)
        )
        assert len(stores) > 3
        assert {the(each, "n").pool for each in stores} == {None, "U"}
        for store in stores:
            assert disorder(store) == IN_ORDER
            if the(store, "n").pool is not None:
                assert store.acquire("next", Request("U", name="n"), wait=20)
                store.engine.free("next")
            assert keys_left(store) == []

    def test_has_its_release_move_it_or_holds_it_still(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        def hold(store: Access) -> None:
            store.acquire("me", Request("T", name=NAMES[0], ttl_seconds=60))
            update(store, to_move("U", when_free=True), NAMES[0])

        stores = self.killed_at_each(
            etcd, between, prefix, lambda access: access.engine.free("me"), hold
        )
        assert len(stores) > 3
        assert {the(each, NAMES[0]).pool for each in stores} == {"T", "U"}
        for store in stores:
            member = the(store, NAMES[0])
            assert (member.holder is None) == (member.pool == "U")
            assert disorder(store) == IN_ORDER
            store.engine.free("me")
            assert the(store, NAMES[0]) == Member(NAMES[0], "U")
            assert store.acquire("next", Request("U"), wait=0)


class TestTimes:
    """What etcd counts itself."""

    def test_a_lifetime_that_is_over_has_nobody_get_it(self, pools: Access) -> None:
        update(pools, to_join("U", SHORT), "n")
        update(pools, to_join("U"), "m")
        life = pools.keys.life("U", "n")
        eventually(lambda: pools.gateway.read(read(life)).answers[0].first is None)
        (lease,) = pools.acquire("me", Request("U"), wait=0)
        assert lease.name == "m"
        assert the(pools, "n") == Member("n")
        assert disorder(pools) == IN_ORDER

    def test_who_waits_gets_what_was_held_back_when_its_grace_is_over(self, pools: Access) -> None:
        members_of(pools).change_belonging(lambda each: set_default(each, "U", SHORT))
        pools.pools.add_resources("U", ["n"])
        (lease,) = pools.acquire("me", Request("U"), wait=20)
        assert lease.name == "n"
        assert disorder(pools) == IN_ORDER

    def test_who_waits_gets_what_comes_with_the_end_of_another_pools_lease(
        self, pools: Access
    ) -> None:
        pools.acquire("dead", Request("T", name=NAMES[0], ttl_seconds=SHORT))
        update(pools, to_move("U", when_free=True), NAMES[0])
        update(pools, to_join("U"), "n")
        pools.acquire("other", Request("U", name="n"), wait=0)
        (lease,) = pools.acquire("me", Request("U"), wait=20)
        assert lease.name == NAMES[0]

    def test_a_release_after_the_end_of_a_lifetime_takes_it_out(self, pools: Access) -> None:
        update(pools, to_join("U", SHORT), "n")
        pools.acquire("me", Request("U", name="n"))
        life = pools.keys.life("U", "n")
        eventually(lambda: pools.gateway.read(read(life)).answers[0].first is None)
        assert pools.engine.free("me") == ("n",)
        assert the(pools, "n") == Member("n")
        assert disorder(pools) == IN_ORDER

    def test_a_release_during_a_lifetime_leaves_it_there(self, pools: Access) -> None:
        update(pools, to_join("U", 60), "n")
        for _ in range(2):
            pools.acquire("me", Request("U", name="n"), wait=0)
            assert pools.engine.free("me") == ("n",)
        member = the(pools, "n")
        assert (member.pool, member.lifetime) == ("U", Lifetime(ttl_seconds=60.0))
        assert after_lifetime(member) == Member("n")
        assert disorder(pools) == IN_ORDER


class TestSizes:
    def test_more_than_a_transaction_takes_is_done_in_parts(self, pools: Access) -> None:
        names = [f"n-{number:03d}" for number in range(100)]
        update(pools, to_add("T"), *names)
        update(pools, lambda member, _: member._replace(properties=EU), *names)
        update(pools, to_move("U"), *names)
        assert (in_pool(pools, "T"), in_pool(pools, "U")) == (NAMES, names)
        assert disorder(pools) == IN_ORDER

    def test_many_properties_are_written_in_parts(self, pools: Access) -> None:
        large = tuple((f"key-{number:02d}", "x" * 1024) for number in range(32))
        names = [f"n-{number:03d}" for number in range(30)]
        update(pools, to_add("T"), *names)
        update(pools, lambda member, _: member._replace(properties=large), *names)
        update(pools, to_move("U"), *names)
        assert {each.properties for each in members_of(pools).members(names)} == {large}

    def test_of_several_parts_one_that_is_refused_keeps_all_from_being_done(
        self, pools: Access
    ) -> None:
        names = [f"n-{number:03d}" for number in range(100)]
        update(pools, to_add("T"), *names)
        pools.acquire("me", Request("T", name=names[-1]))
        with pytest.raises(NotAllowed, match="held by"):
            update(pools, to_move("U"), *names)
        assert in_pool(pools, "U") == []

    def test_who_is_refused_in_between_is_told_what_is_done(
        self, pools: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"n-{number:03d}" for number in range(100)]
        update(pools, to_add("T"), *names)
        other = Access(pools.gateway.endpoints, pools.keys.prefix)

        members = members_of(pools)
        writes = members._writes.write

        def write(*given: object, **more: object) -> object:
            written = writes(*given, **more)  # type: ignore[arg-type]
            if the(other, names[-1]).holder is None:
                other.acquire("other", Request("T", name=names[-1]), wait=0)
            return written

        monkeypatch.setattr(members._writes, "write", write)
        with pytest.raises(NotAllowed, match=r"held by.*done already for n-000, n-001"):
            members.update(names, to_move("U"))
        assert the(pools, names[0]).pool == "U"
        assert the(pools, names[-1]).pool == "T"

    def test_a_lease_of_sixty_that_all_stay_closed_is_given_back(self, pools: Access) -> None:
        names = [f"n-{number:03d}" for number in range(60)]
        update(pools, to_add("U"), *names)
        pools.acquire("me", Request("U", count=60))
        update(pools, to_cordon(), *names)
        update(pools, to_move("T", when_free=True), *names[:30])
        assert len(pools.engine.free("me")) == 60
        assert in_pool(pools, "U") == names[30:]
        assert disorder(pools) == IN_ORDER

    def test_many_pools_are_seen_as_they_are_at_one_revision(self, pools: Access) -> None:
        for number in range(40):
            pools.pools.create_pool(f"P{number:02d}", [])
        update(pools, to_add("P00"), "n")
        is_over = threading.Event()
        seen: set[tuple[str, ...]] = set()
        looking = Access(pools.gateway.endpoints, pools.keys.prefix)

        def look() -> None:
            while not is_over.is_set():
                found = looking.pools.pools()
                seen.add(tuple(p.type for p in found for r in p.resources if r.name == "n"))

        watching = threading.Thread(target=look)
        watching.start()
        for turn in range(40):
            update(pools, to_move(("P39", "P00")[turn % 2]), "n")
        is_over.set()
        watching.join()
        assert seen <= {("P00",), ("P39",)}


class TestOlderVersions:
    """They know of nothing but ``name/``, ``resource/``, ``free/`` and ``held/``."""

    def put_back(self, store: Access, name: str) -> None:
        """What the release of one of them writes."""
        (held,) = store.gateway.read(read_all(store.keys.helds("T"))).answers
        (kv,) = held.items
        claim = json.loads(kv.value)
        fence = 128 * kv.mod_revision + claim["places"][0]
        free = put(store.keys.free("T", fence, name), '{"last_holder": "x", "transitions": 1}')
        store.gateway.commit(
            (), [free, delete(kv.key), delete(store.keys.alives("T") + kv.key[-16:])]
        )

    def test_release_what_is_closed_and_the_next_look_closes_it(self, pools: Access) -> None:
        pools.acquire("old", Request("T", name=NAMES[0]))
        update(pools, to_cordon(), NAMES[0])
        self.put_back(pools, NAMES[0])
        assert the(pools, NAMES[0]).cordoned
        assert [pools.acquire(str(n), Request("T"), wait=0)[0].name for n in range(3)] == NAMES[1:]

    def test_release_what_is_to_move_and_it_moves_with_the_next_change(self, pools: Access) -> None:
        pools.acquire("old", Request("T", name=NAMES[0]))
        update(pools, to_move("U", when_free=True), NAMES[0])
        self.put_back(pools, NAMES[0])
        assert the(pools, NAMES[0]) == Member(NAMES[0], "U")
        assert disorder(pools) == IN_ORDER

    def test_take_a_name_out_and_put_it_elsewhere(self, pools: Access) -> None:
        update(pools, to_cordon(), NAMES[0])
        update(pools, lambda member, _: member._replace(properties=EU), NAMES[0])
        keys, name = pools.keys, NAMES[0]
        pools.gateway.commit(
            (),
            [
                delete(keys.resource("T", name)),
                put(keys.name(name), "U older"),
                put(keys.resource("U", name), ""),
                put(keys.free("U", 0, name), '{"last_holder": null, "transitions": 0}'),
            ],
        )
        assert the(pools, name) == Member(name, "U")
        assert disorder(pools).orphans
        members_of(pools).check().mend()
        assert disorder(pools) == IN_ORDER
        assert pools.acquire("me", Request("U"), wait=0)


class TestDisorder:
    def test_is_found_and_mended(self, pools: Access) -> None:
        keys = pools.keys
        update(pools, to_cordon(), "T--0")
        (free,) = pools.gateway.read(read_all(keys.frees("T"), keys_only=True)).answers
        pools.gateway.commit(
            (),
            [
                delete(free.items[0].key),
                delete(keys.closed("T", "T--0")),
                put(keys.bound("T", "gone"), '{"closed": true, "has_life": false}'),
                put(keys.life("T", "T--2"), ""),
                put(keys.coming("U", "T--2"), "T"),
                put(keys.resource("V", "lost"), ""),
                put(keys.member("nobody"), '{"by": "x"}'),
            ],
        )
        found = disorder(pools)
        assert found.astray == ("T--0", free.items[0].key.rpartition("/")[2])
        start = len(keys.prefix)
        assert sorted(key[start:] for key in found.orphans) == [
            "bound/T/gone",
            "coming/U/T--2",
            "life/T/T--2",
            "member/nobody",
            "resource/V/lost",
        ]
        members_of(pools).check().mend()
        assert disorder(pools) == IN_ORDER
        assert the(pools, "T--0").cordoned
        taken = [pools.acquire(str(n), Request("T"), wait=0)[0].name for n in range(3)]
        assert sorted(taken) == NAMES[1:]

    def test_of_a_deleted_pool_goes_whole(self, pools: Access) -> None:
        pools.gateway.commit((), [delete(pools.keys.pool("T"))])
        assert disorder(pools).deleted == ("T",)
        members_of(pools).check().mend()
        assert disorder(pools) == IN_ORDER
        update(pools, to_add("U"), *NAMES)


def test_a_server_that_can_not_be_asked_is_said(pools: Access, between: Relay) -> None:
    through = Access([between.endpoint], pools.keys.prefix, seconds=0.2)
    between.cut()
    with pytest.raises(BackendUnreachable):
        update(through, to_move("U"), NAMES[0])
