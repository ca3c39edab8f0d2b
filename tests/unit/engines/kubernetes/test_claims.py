"""Claims that more than one process sees: who has claimed isn't always who renews."""

from __future__ import annotations

import pytest

from leasectl.model import Request
from tests.kit.support import ManualClock
from tests.unit.engines.kubernetes.made_up_api import MadeUpApi
from tests.unit.engines.kubernetes.parts import Process

KEY = "h/1"


class TestWhatAnotherProcessRenewed:
    """By what its claimant remembers the time of such a claim is over, and it isn't."""

    @pytest.fixture
    def claimant(self, manual_clock: ManualClock) -> Process:
        api = MadeUpApi()
        claimant, keeper = (Process(api, manual_clock.clock) for _ in range(2))
        claimant.pools.create_pool("T", ["a", "b"])
        assert claimant.acquire(KEY, Request("T", count=2, ttl_seconds=60))
        for _ in range(3):
            manual_clock.advance(50)
            assert keeper.engine.renew(KEY) == ("a", "b")
        return claimant

    @pytest.mark.parametrize("names", [None, ("a", "b")])
    def test_is_released_by_whoever_has_claimed_it(
        self, claimant: Process, names: tuple[str, ...] | None
    ) -> None:
        assert claimant.engine.free(KEY, names) == ("a", "b")
        assert claimant.held() == {}
        assert claimant.lost == []

    def test_is_renewed_by_whoever_has_claimed_it(self, claimant: Process) -> None:
        assert claimant.engine.renew(KEY) == ("a", "b")
        assert sorted(claimant.held()) == ["a", "b"]

    def test_is_lost_when_nobody_renews_it_any_more(
        self, claimant: Process, manual_clock: ManualClock
    ) -> None:
        assert claimant.engine.renew(KEY) == ("a", "b")
        manual_clock.advance(60)
        assert claimant.engine.free(KEY, ("a", "b")) == ()
        assert claimant.held() == {}
        assert sorted(claimant.lost) == [(KEY, "a"), (KEY, "b")]
