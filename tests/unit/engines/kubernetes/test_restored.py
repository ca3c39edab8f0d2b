"""A cluster that was restored from a backup: what was observed before isn't so any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.engines.rules.membership import set_default
from leasectl.model import Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

ONE = Request("T", ttl_seconds=30.0)


@pytest.fixture
def api() -> MadeUpApi:
    return MadeUpApi()


def restored_to_before_a_renewal(
    api: MadeUpApi, clock: ManualClock, *observers: Process
) -> Process:
    """A holder renews after 20 s, which the backup doesn't know; returns it after 12 s more."""
    holder = Process(api, clock.clock)
    holder.pools.create_pool("T", ["a", "b"])
    holder.acquire("k/1", ONE)
    for each in observers:
        each.pools.pools()
    restore = api.backup()
    clock.advance(20.0)
    assert holder.engine.renew("k/1") == ("a",)
    for each in observers[:1]:
        each.pools.pools()
    restore()
    clock.advance(12.0)
    return holder


def test_whoever_sees_it_takes_nothing_over_and_says_so(
    api: MadeUpApi, manual_clock: ManualClock, tmp_path: Path
) -> None:
    observer = Process(api, manual_clock.clock, tmp_path / "observed")
    holder = restored_to_before_a_renewal(api, manual_clock, observer)
    assert observer.held() == {"a": "job/1/host/k/1"}
    assert len(observer.warnings) == 1
    assert "restored from a backup" in observer.warnings[0]
    assert holder.engine.renew("k/1") == ("a",)
    assert observer.lost == []
    observer.pools.pools()
    manual_clock.advance(31.0)
    assert observer.held() == {}
    assert len(observer.warnings) == 1


def test_who_cant_see_it_hears_of_it(
    api: MadeUpApi, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """By then more has been written than it had seen before."""
    first = Process(api, manual_clock.clock)
    second = Process(api, manual_clock.clock, tmp_path / "observed")
    restored_to_before_a_renewal(api, manual_clock, first, second)
    first.pools.pools()
    for _ in range(3):
        first.acquire("k/2", Request("T", name="b"))
        first.engine.free("k/2")
    assert second.held() == {"a": "job/1/host/k/1"}
    assert (len(first.warnings), second.warnings) == (1, [])
    third = Process(api, manual_clock.clock, tmp_path / "observed")
    assert third.held() == {"a": "job/1/host/k/1"}


def test_fences_go_on_above_what_was_seen(
    api: MadeUpApi, manual_clock: ManualClock, tmp_path: Path
) -> None:
    process = Process(api, manual_clock.clock, tmp_path / "observed")
    process.pools.create_pool("T", ["a"])
    restore = api.backup()
    for _ in range(3):
        (before,) = process.acquire("k/1", ONE)
        process.engine.free("k/1")
    restore()
    process.pools.pools()
    (after,) = Process(api, manual_clock.clock).acquire("k/2", ONE)
    assert after.fence > before.fence


@pytest.mark.parametrize("is_expected", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_those_of_a_pool_that_is_made_later_do_too(
    api: MadeUpApi, manual_clock: ManualClock, tmp_path: Path, is_there: bool, is_expected: bool
) -> None:
    """Also of one that was deleted in between, and nothing else is left."""
    process = Process(api, manual_clock.clock, tmp_path / "observed")
    restore = api.backup()
    if is_there:
        process.pools.create_pool("T", ["a"])
        if is_expected:
            process.opened.members.change_belonging(lambda pools: set_default(pools, "T", 0.0))
        restore = api.backup()
    else:
        process.pools.create_pool("T", ["a"])
    for _ in range(20):
        (before,) = process.acquire("k/1", ONE)
        process.engine.free("k/1")
    restore()
    process.pools.pools()
    other = Process(api, manual_clock.clock)
    if is_there:
        other.pools.delete_pool("T", force=False)
    other.pools.create_pool("T", ["a"])
    (after,) = other.acquire("k/2", ONE)
    assert after.fence > before.fence
