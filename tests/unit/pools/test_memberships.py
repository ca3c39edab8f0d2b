"""The verbs on memberships, over pools in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pytest import MonkeyPatch

from leasectl.backends.contract import Patience
from leasectl.engines.facts import Pool, PoolSettings, QueueEntry, Resource
from leasectl.engines.local.members import LocalMembers
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.service import Service
from leasectl.model import Request, Where
from leasectl.pools import admin, memberships
from leasectl.pools.memberships import described, unmet_waiters
from leasectl.pools.properties import NO_CHANGE
from leasectl.pools.settings import USUAL_GRACE_SECONDS
from leasectl.pools.whereabouts import (
    Expectation,
    expectation_fields,
    expectations,
    whereabouts,
    whereabouts_fields,
)


def names(service: Service, pool_type: str) -> list[str]:
    (pool,) = service.pools.pools(pool_type)
    return [each.name for each in pool.resources]


def hold(service: Service, name: str, pool_type: str = "A") -> None:
    request = Request(pool_type, name=name)
    announce(service, acquire(service, request, patience=Patience(wait_seconds=0)))


class TestCreating:
    def test_makes_a_pool_of_names_that_are_in_none(self, service: Service) -> None:
        admin.create(service, "N", ["n-1", "n-2"], PoolSettings(20.0))
        assert names(service, "N") == ["n-1", "n-2"]
        assert service.pools.pools("N")[0].settings.pace_seconds == 20.0

    @pytest.mark.parametrize(
        ("name", "said"), [("a-1", 'in pool "A"'), ("x-1", 'expected in pool "B"')]
    )
    def test_of_a_name_that_is_or_belongs_elsewhere_is_refused_whole(
        self, service: Service, name: str, said: str
    ) -> None:
        memberships.expect(service, "B", ["x-1"], [])
        with pytest.raises(NotAllowed, match=said):
            admin.create(service, "N", ["n-1", name])
        assert [each.type for each in service.pools.pools()] == ["A", "B"]

    def test_takes_over_what_came_by_default(self, service: Service) -> None:
        memberships.change_default(service, "B", grace_seconds=60.0)
        admin.add_with(service, "B", ("n",), NO_CHANGE)
        admin.create(service, "N", ["n", "m"])
        assert (names(service, "N"), names(service, "B")) == (["m", "n"], ["b-1"])

    def test_of_a_pool_that_is_there_is_a_mistake(self, service: Service) -> None:
        with pytest.raises(InvalidRequest, match='pool "A" exists'):
            admin.create(service, "A", ["a-1"])


class TestAdding:
    def test_numbers_go_on(self, service: Service) -> None:
        assert admin.add_with(service, "A", 2, NO_CHANGE) == ("A--00", "A--01")
        assert admin.add_with(service, "A", 1, NO_CHANGE) == ("A--02",)

    def test_a_number_that_another_pool_has_is_refused(self, service: Service) -> None:
        admin.add_with(service, "B", ("A--00",), NO_CHANGE)
        with pytest.raises(NotAllowed, match='in pool "B"'):
            admin.add_with(service, "A", 1, NO_CHANGE)


class TestMoving:
    def test_of_a_held_one_moves_none(self, service: Service) -> None:
        hold(service, "a-2")
        with pytest.raises(NotAllowed):
            memberships.move(service, ["a-1", "a-2"], "B", when_free=False)
        assert names(service, "B") == ["b-1"]

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (BackendUnreachable("no answer"), "no answer; already moved: a-1"),
            (NotAllowed("one is held; already changed: a-1"), ""),
        ],
    )
    def test_that_stops_half_way_on_a_server_says_once_which_have_moved(
        self,
        service: Service,
        monkeypatch: MonkeyPatch,
        error: LeaseError,
        said: str,
    ) -> None:
        update, refusal = LocalMembers.update, str(error)

        def half(self: LocalMembers, names: Sequence[str], decide: Decide) -> Updated:
            update(self, names[:1], decide)
            raise error

        monkeypatch.setattr(LocalMembers, "update", half)
        with pytest.raises(type(error)) as raised:
            memberships.move(service, ["a-1", "a-2"], "B", when_free=False)
        assert str(raised.value) == (said or refusal)


class TestTheDefaultPool:
    def test_holds_back_for_the_usual_time_unless_told(self, service: Service) -> None:
        before, after = memberships.change_default(service, "B")
        assert (before.default, after.default) == (None, "B")
        assert after.grace_seconds == USUAL_GRACE_SECONDS
        _, after = memberships.change_default(service, "B", is_default=None, grace_seconds=5.0)
        assert after.grace_seconds == 5.0
        assert memberships.change_default(service, "B")[1].grace_seconds == 5.0

    def test_is_none_again(self, service: Service) -> None:
        memberships.change_default(service, "B", grace_seconds=5.0)
        assert memberships.change_default(service, "A", is_default=False)[1].default == "B"
        assert memberships.change_default(service, "B", is_default=False)[1].default is None
        with pytest.raises(NotFound):
            memberships.change_default(service, "C", is_default=False)
        with pytest.raises(InvalidRequest, match="--default"):
            memberships.change_default(service, "B", is_default=None, grace_seconds=5.0)


class TestExpectations:
    def test_are_told_by_type_names_first(self, service: Service) -> None:
        memberships.expect(service, "B", ["x", "b-1"], ["x-*"])
        memberships.expect(service, "A", [], ["*"])
        found = expectations(service)
        assert found == (
            Expectation("*", is_pattern=True, type="A"),
            Expectation("b-1", is_pattern=False, type="B", pool="B"),
            Expectation("x", is_pattern=False, type="B"),
            Expectation("x-*", is_pattern=True, type="B"),
        )
        assert expectations(service, "A") == found[:1]
        assert expectation_fields(found[0])["pattern"] == "*"

    def test_answer_for_names_that_are_nowhere(self, service: Service) -> None:
        memberships.expect(service, "B", [], ["x*", "x-1*"])
        memberships.expect(service, "A", ["x-1"], [])
        by_pattern, by_name = whereabouts(service, "x-12"), whereabouts(service, "x-1")
        assert (by_pattern.type, by_pattern.pattern, by_pattern.state) == ("B", "x-1*", "expected")
        assert (by_name.type, by_name.pattern) == ("A", None)
        assert whereabouts_fields(by_name)["pool"] is None


def test_where_a_name_is_tells_who_holds_it(service: Service) -> None:
    hold(service, "a-2")
    found = whereabouts(service, "a-2")
    assert (found.type, found.state) == ("A", "held")
    assert str(found.member.holder).startswith("test@host/host/A-")


def test_a_cordon_of_an_unknown_name_changes_none(service: Service) -> None:
    with pytest.raises(LeaseError):
        memberships.cordon(service, ["a-1", "z"], is_cordoned=True)
    assert not whereabouts(service, "a-1").member.cordoned


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
    assert said.startswith('the request of job/1 keeps waiting: pool "T" has 1 resource')
