"""What several writes make of a pool, whoever is killed between two of them, or writes at once."""

from __future__ import annotations

import pytest

from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.membership import add, cordon, expect, move
from leasectl.errors import InvalidRequest, NotAllowed, NotFound
from leasectl.model import Claimant, Request
from tests.kit.support import ManualClock
from tests.unit.engines.kubernetes.made_up_api import Killed, MadeUpApi
from tests.unit.engines.kubernetes.parts import Process

NAMES = ["a", "b", "c"]


@pytest.fixture
def api() -> MadeUpApi:
    return MadeUpApi()


@pytest.fixture
def process(api: MadeUpApi, manual_clock: ManualClock) -> Process:
    return Process(api, manual_clock.clock)


def names_in(process: Process, pool_type: str = "T") -> list[str]:
    (pool,) = process.pools.pools(pool_type)
    return [each.name for each in pool.resources]


def kill_at(api: MadeUpApi, number: int) -> None:
    start = len(api.asked)

    def kill(at: int) -> None:
        if at - start == number:
            raise Killed

    api.before = kill


def nobody_kills(api: MadeUpApi) -> None:
    api.before = lambda at: None


class TestAKill:
    @pytest.mark.parametrize("number", range(5))
    def test_while_a_pool_is_made_leaves_one_that_can_be_completed(
        self, api: MadeUpApi, process: Process, number: int
    ) -> None:
        kill_at(api, number)
        with pytest.raises(Killed):
            process.pools.create_pool("T", NAMES)
        nobody_kills(api)
        if number < 2:
            process.pools.create_pool("T", NAMES)
        else:
            there = names_in(process)
            assert there == NAMES[: number - 2]
            process.pools.add_resources("T", [each for each in NAMES if each not in there])
        assert names_in(process) == NAMES

    @pytest.mark.parametrize("number", range(16))
    def test_while_a_pool_is_deleted_leaves_what_the_next_deletes(
        self, api: MadeUpApi, process: Process, number: int
    ) -> None:
        process.pools.create_pool("T", NAMES)
        kill_at(api, number)
        was_killed = False
        try:
            process.pools.delete_pool("T", force=False)
        except Killed:
            was_killed = True
        nobody_kills(api)
        is_marked = "leasectl.dev/deleting" in str(api.objects.get(object_of_pool("T")))
        if was_killed and is_marked:
            with pytest.raises(NotFound):
                process.acquire("k/1", Request("T"))
        elif was_killed and object_of_pool("T") in api.objects:
            process.pools.delete_pool("T", force=False)
        process.pools.create_pool("T", ["a", "d"])
        assert names_in(process) == ["a", "d"]
        assert sorted(api.objects) == sorted([object_of_pool("T"), "a", "d"])


class TestAtOnce:
    def test_of_two_who_want_a_name_the_second_undoes_what_he_has_done(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        other = Process(api, manual_clock.clock)
        process.pools.create_pool("U", ["u"])

        def break_in(at: int) -> None:
            if api.asked[at] == ("create", "b"):
                nobody_kills(api)
                other.pools.add_resources("U", ["b"])

        api.before = break_in
        with pytest.raises(InvalidRequest, match='"b" is already in pool "U"'):
            process.pools.create_pool("T", NAMES)
        assert [each.type for each in process.pools.pools()] == ["U"]
        assert names_in(process, "U") == ["b", "u"]
        assert "a" not in api.objects

    def test_who_claims_as_a_pool_is_deleted_keeps_what_he_has(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        process.pools.create_pool("T", NAMES)
        other = Process(api, manual_clock.clock)
        waiter_of = Request("T", name="b")

        def break_in(at: int) -> None:
            verb, name = api.asked[at]
            if verb == "delete" and name == "b":
                nobody_kills(api)
                resource = other.opened.store.resource("b")
                assert resource is not None
                view = other.opened.store.pool("T")
                own = other.engine.waiter(_claimant("k/1", waiter_of), until=None).ticket
                assert other.opened.claims.make(own, view, [resource])

        api.before = break_in
        with pytest.raises(NotAllowed, match='"b" is held'):
            process.pools.delete_pool("T", force=False)
        assert names_in(process) == NAMES
        assert process.held() == {"b": "job/1/host/k/1"}
        assert other.engine.renew("k/1") == ("b",)
        process.acquire("k/2", Request("T", count=2))

    def test_a_fact_of_a_name_is_decided_anew_where_another_was_faster(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        process.pools.create_pool("T", NAMES)
        process.pools.create_pool("U", [])
        other = Process(api, manual_clock.clock)

        def break_in(at: int) -> None:
            if api.asked[at] == ("update", "a"):
                nobody_kills(api)
                other.opened.members.update(
                    ["a"], lambda m, pools: move(m, "U", pools, when_free=False)
                )

        api.before = break_in
        updated = process.opened.members.update(["a"], lambda m, _: cordon(m, is_cordoned=True))
        assert updated.before[0].pool == "U"
        assert process.opened.members.members(["a"])[0].cordoned
        assert names_in(process, "U") == ["a"]


def test_what_is_expected_of_a_name_has_an_object_and_no_pool(
    api: MadeUpApi, process: Process
) -> None:
    process.pools.create_pool("T", [])
    process.opened.members.update(["n"], lambda m, pools: expect(m, "T", pools))
    assert "leasectl.dev/pool" not in api.objects["n"]["metadata"]["labels"]
    process.opened.members.update(["n"], lambda m, pools: add(m, "T", pools))
    assert names_in(process) == ["n"]


def _claimant(key: str, request: Request) -> Claimant:
    return Claimant(key, f"job/1/host/{key}", request)
