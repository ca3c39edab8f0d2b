"""leasectl.leases.on_demand: pools that are there as long as somebody needs them."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.engines.local.pools import LocalPools
from leasectl.engines.values import ValueChange
from leasectl.errors import InvalidRequest, NoNamespace, NotSupported, StateUnwritable
from leasectl.leases.on_demand import PoolOnDemand, is_needed, remove_unused, round_key
from leasectl.model import Request
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.process import this_process
from leasectl.text.naming import reserved_type
from tests.kit.desk import Desk

WORK = reserved_type("0" * 64)
US = MadePool("local:", "", WORK, this_process())


@pytest.fixture
def pool(desk: Desk) -> PoolOnDemand:
    return PoolOnDemand(desk.service, WORK)


def known(desk: Desk) -> list[MadePool]:
    return MadePools(desk.state).all()


def pools(desk: Desk) -> list[str]:
    return [each.type for each in desk.service.pools.pools()]


def test_who_needs_one_says_so_once_and_has_the_keeper_know(
    desk: Desk, pool: PoolOnDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[State] = []
    monkeypatch.setattr(keeper_process, "wake", woken.append)
    pool.need()
    assert (known(desk), pools(desk), woken) == ([US], [], [desk.state])
    pool.need()
    assert woken == [desk.state]


def test_it_is_made_of_one_resource_of_its_name_by_whoever_is_first(
    desk: Desk, pool: PoolOnDemand
) -> None:
    pool.need()
    assert pool.make()
    assert not pool.make()
    assert not PoolOnDemand(desk.service, WORK).make()
    ((made),) = desk.service.pools.pools()
    assert (made.type, [each.name for each in made.resources]) == (WORK, [WORK])


def test_where_there_are_no_pools_that_is_said(desk: Desk) -> None:
    with pytest.raises(NotSupported):
        PoolOnDemand(desk.as_caller(desk.caller, "none:"), WORK).make()


def test_it_goes_with_its_round_when_nobody_needs_it_any_more(
    desk: Desk, pool: PoolOnDemand
) -> None:
    pool.need()
    pool.make()
    key = round_key(WORK)
    desk.service.values.change([ValueChange(key, b"1", None)])
    pool.leave()
    assert (known(desk), pools(desk)) == ([], [])
    assert desk.service.values.get(key) is None


def test_it_stays_for_others_who_hold_it_or_wait(desk: Desk, pool: PoolOnDemand) -> None:
    pool.need()
    pool.make()
    assert not is_needed(desk.service.pools, WORK)
    desk.acquire(Request(WORK))
    assert is_needed(desk.service.pools, WORK)
    desk.service.values.change([ValueChange(round_key(WORK), b"1", None)])
    pool.leave()
    assert (known(desk), pools(desk)) == ([], [WORK])
    assert desk.service.values.get(round_key(WORK)) is not None


def test_it_stays_also_while_somebody_only_waits(desk: Desk, pool: PoolOnDemand) -> None:
    pool.make()
    desk.put_ticket(1, this_process(), WORK)
    assert is_needed(desk.service.pools, WORK)
    desk.service.values.change([ValueChange(round_key(WORK), b"1", None)])
    assert remove_unused(desk.service.backend_at("local:", ""), WORK)
    assert pools(desk) == [WORK]
    assert desk.service.values.get(round_key(WORK)) is not None


def test_who_never_needed_it_takes_nothing_away(desk: Desk, pool: PoolOnDemand) -> None:
    desk.service.pools.create_pool(WORK, [WORK])
    pool.leave()
    assert pools(desk) == [WORK]


def test_what_is_left_to_the_keeper_stays_on_record(desk: Desk, pool: PoolOnDemand) -> None:
    pool.need()
    pool.make()
    pool.leave_to_keeper()
    pool.leave()
    assert (known(desk), pools(desk)) == ([US], [WORK])


def test_what_can_not_be_removed_now_stays_on_record(
    desk: Desk, pool: PoolOnDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StateUnwritable("no space left")

    pool.need()
    pool.make()
    monkeypatch.setattr("leasectl.leases.on_demand.remove_unused", full)
    pool.leave()
    assert (known(desk), pools(desk)) == ([US], [WORK])


def test_who_comes_just_as_it_is_removed_keeps_it(
    desk: Desk, pool: PoolOnDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.make()
    backend = desk.service.backend_at("local:", "")
    look = LocalPools.pools
    came: list[bool] = []

    def look_before_somebody_comes(*args: Any, **options: Any) -> Any:
        found = look(*args, **options)
        if not came:
            came.append(True)
            desk.acquire(Request(WORK))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LocalPools, "pools", look_before_somebody_comes)
        assert remove_unused(backend, WORK)
    assert came
    assert pools(desk) == [WORK]
    assert is_needed(desk.service.pools, WORK)


def test_none_is_needed_or_left_where_its_namespace_is_gone(
    desk: Desk, pool: PoolOnDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the keeper would try for ever."""
    pool.make()
    backend = desk.service.backend_at("local:", "")

    def refuse(*_: object, **__: object) -> None:
        raise NoNamespace(InvalidRequest("no namespace"))

    monkeypatch.setattr(LocalPools, "pools", refuse)
    assert not is_needed(backend.pools, WORK)
    assert not remove_unused(backend, WORK)
