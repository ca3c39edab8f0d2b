"""Who only looks, as a shell that completes a word does, writes nothing: whatever is over stays."""

from __future__ import annotations

import subprocess
from typing import cast

import pytest

from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.membership import Lifetime, join
from leasectl.model import Request
from leasectl.system.process import identify
from tests.kit.support import ManualClock
from tests.unit.engines.kubernetes.made_up_api import Killed, MadeUpApi
from tests.unit.engines.kubernetes.parts import Process


def test_whoever_only_looks_writes_nothing(manual_clock: ManualClock) -> None:
    api = MadeUpApi()
    process = Process(api, manual_clock.clock)
    process.pools.create_pool("T", ["a"])
    process.pools.create_pool("U", ["u"])
    with subprocess.Popen(["sleep", "1000"]) as brief:
        lifetime = Lifetime(process=identify(brief.pid))
        members = process.opened.members
        members.update(["n"], lambda m, pools: join(m, "T", pools, lifetime=lifetime))
        process.acquire("k/1", Request("T", name="a", ttl_seconds=5.0))
        leave_half_gone(api, process)
        brief.kill()
        brief.wait()
    opened = open_kubernetes(
        cast("Api", api),
        "ns",
        state_id="",
        lost=lambda claim_key, names: None,
        clock=manual_clock.clock,
        only_looks=True,
    )
    for _ in range(2):
        api.asked.clear()
        assert [each.name for each in opened.members.members()] == ["a", "n"]
        assert [each.type for each in opened.pools.pools()] == ["T"]
        assert opened.members.belonging().types == {"T"}
        assert {verb for verb, _ in api.asked} <= {"list", "get"}
        manual_clock.advance(10.0)
    assert [each.name for each in process.opened.members.members()] == ["a"]


def leave_half_gone(api: MadeUpApi, process: Process) -> None:
    def kill(at: int) -> None:
        if api.asked[at] == ("delete", "u"):
            raise Killed

    api.before = kill
    with pytest.raises(Killed):
        process.pools.delete_pool("U", force=False)
    api.before = lambda at: None
