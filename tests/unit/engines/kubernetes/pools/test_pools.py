"""What several writes make of a pool, whoever is killed between two of them, or writes at once."""

from __future__ import annotations

import contextlib

import pytest

from leasectl.engines.cluster.claims import Part
from leasectl.engines.cluster.objects import Change
from leasectl.engines.contract import TicketGone
from leasectl.engines.kubernetes.names import OBJECT_OF_BELONGING, SETTINGS, object_of_pool
from leasectl.engines.rules.membership import (
    move,
)
from leasectl.errors import InvalidRequest, NotAllowed, NotFound
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import Killed, MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.pool_changes import add_resources
from tests.kit.support import ManualClock

NAMES = ["a", "b", "c"]
pytestmark = pytest.mark.usefixtures("nobody_is_waited_for")


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
    @pytest.mark.parametrize("number", range(12))
    def test_while_a_pool_is_made_leaves_none_and_the_next_makes_it(
        self, api: MadeUpApi, process: Process, number: int
    ) -> None:
        kill_at(api, number)
        with pytest.raises(Killed):
            process.pools.create_pool("T", NAMES)
        nobody_kills(api)
        assert process.pools.pools() == ()
        assert all(each.pool is None for each in process.opened.members.members(NAMES))
        process.pools.create_pool("T", [*NAMES, "d"])
        assert names_in(process) == [*NAMES, "d"]
        assert sorted(api.objects) == sorted([object_of_pool("T"), *NAMES, "d"])

    def test_while_a_pool_is_made_is_told_to_who_wants_it_or_a_name_of_it(
        self, api: MadeUpApi, process: Process
    ) -> None:
        process.pools.create_pool("U", ["u"])
        kill_at(api, 8)
        with pytest.raises(Killed):
            process.pools.create_pool("T", NAMES)
        nobody_kills(api)
        end_it = "being created; if .* killed, run: leasectl pool delete T"
        with pytest.raises(NotFound, match=end_it):
            process.acquire("k/1", Request("T"))
        with pytest.raises(InvalidRequest, match=r'"a" is being put into pool "T".*pool delete T'):
            add_resources(process.members, "U", ["a"])
        process.pools.delete_pool("T", force=False)
        add_resources(process.members, "U", NAMES)
        assert names_in(process, "U") == [*NAMES, "u"]

    @pytest.mark.parametrize("number", range(24))
    def test_while_a_pool_is_deleted_leaves_what_the_next_deletes(
        self, api: MadeUpApi, process: Process, number: int
    ) -> None:
        process.pools.create_pool("T", NAMES)
        kill_at(api, number)
        with contextlib.suppress(Killed):
            process.pools.delete_pool("T", force=False)
        nobody_kills(api)
        found = process.opened.context.pool_object("T")
        if found is not None and found.state == "closing":
            with pytest.raises(
                NotFound, match=r"is just being deleted; .*: leasectl pool delete T"
            ):
                process.acquire("k/1", Request("T"))
            assert [each.pool for each in process.opened.members.members(NAMES)] == ["T"] * 3
            process.pools.delete_pool("T", force=False)
        elif found is not None and found.state == "open":
            process.pools.delete_pool("T", force=False)
        assert process.opened.members.members() == ()
        assert api.objects == {} or list(api.objects) == [OBJECT_OF_BELONGING]
        process.pools.create_pool("T", ["a", "d"])
        assert names_in(process) == ["a", "d"]


class TestWhoDeletes:
    def test_has_what_was_to_move_there_stay(self, api: MadeUpApi, process: Process) -> None:
        process.pools.create_pool("T", NAMES)
        process.pools.create_pool("U", [])
        process.acquire("k/1", Request("T", name="a", ttl_seconds=60.0))
        members = process.opened.members
        members.update(["a"], lambda m, pools: move(m, "U", pools, when_free=True))
        process.pools.delete_pool("U", force=False)
        process.engine.free("k/1")
        assert names_in(process) == NAMES

    def test_goes_on_where_another_began_and_stops_where_that_was_called_off(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        """Another calls it off and somebody claims, right before it would be gone."""
        process.pools.create_pool("T", NAMES)
        other = Process(api, manual_clock.clock)
        objects = other.opened.context.objects

        def break_in(at: int) -> None:
            if api.asked[at] != ("update", object_of_pool("T")):
                return
            found = other.opened.context.pool_object("T")
            if found is not None and found.state == "closing":
                nobody_kills(api)
                objects.write(Change(found, found._replace(state="open", word="")))
                assert other.acquire("k/1", Request("T", name="b"))

        api.before = break_in
        with pytest.raises(NotAllowed, match="1 held"):
            process.pools.delete_pool("T", force=False)
        assert names_in(process) == NAMES
        assert process.held() == {"b": "job/1/host/k/1"}
        process.acquire("k/2", Request("T"))


class TestAtOnce:
    def test_who_claims_as_a_pool_is_deleted_keeps_what_he_has(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        process.pools.create_pool("T", NAMES)
        other = Process(api, manual_clock.clock)
        waiter_of = Request("T", name="b")

        resource = other.opened.context.resource("b")
        view = other.opened.context.pool("T")  # which he has seen before it was closing
        assert resource is not None

        def break_in(at: int) -> None:
            verb, name = api.asked[at]
            if verb == "update" and name == "b":
                nobody_kills(api)
                own = other.engine.waiter(_claimant("k/1", waiter_of), until=None).ticket
                assert other.opened.context.claims.make([Part(own, view, [resource])])
                found.append(other.held())
                found.append(names_in(other))
                found.append([each.type for each in other.opened.notes.of_pool("T")])

        found: list[object] = []
        api.before = break_in
        with pytest.raises(NotAllowed, match="1 held"):
            process.pools.delete_pool("T", force=False)
        assert found == [{"b": "job/1/host/k/1"}, NAMES, []]
        assert names_in(process) == NAMES
        assert process.held() == {"b": "job/1/host/k/1"}
        assert other.engine.renew("k/1") == ("b",)
        process.acquire("k/2", Request("T", count=2))

    def test_who_comes_to_a_pool_that_was_made_anew_since_it_looked_waits_there(
        self, api: MadeUpApi, process: Process, manual_clock: ManualClock
    ) -> None:
        process.pools.create_pool("T", NAMES)
        process.acquire("k/1", Request("T", count=3))
        waiting = Process(api, manual_clock.clock)
        waiter = waiting.engine.waiter(_claimant("k/2", Request("T")), until=None)

        def break_in(at: int) -> None:
            if api.asked[at][0] == "create":
                nobody_kills(api)
                process.pools.delete_pool("T", force=True)
                process.pools.create_pool("T", NAMES)
                process.acquire("k/3", Request("T", count=3))

        api.before = break_in
        waiter.enqueue()
        assert waiter.claim().leases is None
        process.engine.withdraw("k/2")
        with pytest.raises(TicketGone):
            waiter.claim()


def _claimant(key: str, request: Request) -> Claimant:
    return Claimant(key, f"job/1/host/{key}", request)


@pytest.mark.parametrize("what", ["deleted", "edited"])
def test_that_a_pool_was_taken_away_by_hand_is_said_once_where_all_are_shown(
    what: str, api: MadeUpApi, process: Process
) -> None:
    process.pools.create_pool("T", NAMES)
    process.pools.create_pool("U", [])
    assert len(process.pools.pools()) == 2
    assert process.warnings == []
    if what == "deleted":
        process.opened.objects.api.delete(process.opened.objects.collection, object_of_pool("T"))
    else:
        api.objects[object_of_pool("T")]["metadata"]["annotations"][SETTINGS] = "damaged"
    for _ in range(2):
        (pool,) = process.opened.pools.pools()
        assert pool.type == "U"
    (warning,) = process.warnings
    assert warning == (
        'no pool "T", although it has 3 resources: Lease "'
        f'{object_of_pool("T")}" was {what}; see: leasectl doctor'
    )


def test_a_name_that_moves_while_claims_are_over_is_shown_in_one_pool(
    manual_clock: ManualClock,
) -> None:
    api = MadeUpApi()
    one, other = Process(api, manual_clock.clock), Process(api, manual_clock.clock)
    one.pools.create_pool("A", ["held", "moves"])
    one.pools.create_pool("B", ["stays"])
    one.acquire("k/1", Request("A", name="held", ttl_seconds=5.0))
    one.pools.pools()
    manual_clock.advance(6.0)
    ends = [False]

    def move_it(number: int) -> None:
        verb, name = api.asked[number]
        if (verb, name) == ("update", "held") and not ends[0]:
            ends[0] = True
            other.opened.members.update(
                ["moves"], lambda m, pools: move(m, "B", pools, when_free=False)
            )

    api.after = move_it
    shown = one.pools.pools()
    assert ends[0]
    assert [each.type for each in shown if "moves" in [r.name for r in each.resources]] == ["B"]
