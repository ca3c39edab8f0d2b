"""Who only looks, as a shell that completes a word does, writes nothing: whatever is over stays.

So does who may do nothing else, by his role.
"""

from __future__ import annotations

import subprocess
from typing import Any, cast

import pytest

from leasectl.engines.kubernetes.api.refusals import NotPermitted
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.rules.membership import Lifetime, join
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NoNamespace,
    NotAllowed,
)
from leasectl.model import Request
from leasectl.system.process import identify
from tests.kit.kubernetes.made_up_api import Killed, MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.pool_changes import remove_resources
from tests.kit.support import ManualClock


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


def test_whoever_may_only_look_is_shown_what_is_over_too(manual_clock: ManualClock) -> None:
    api = MadeUpApi()
    holder, viewer = Process(api, manual_clock.clock), Process(api, manual_clock.clock)
    holder.pools.create_pool("T", ["a"])
    holder.acquire("k/1", Request("T", ttl_seconds=5.0))
    viewer.pools.pools()
    manual_clock.advance(6.0)

    def refuse(at: int) -> None:
        verb, _ = api.asked[at]
        if verb not in ("list", "get"):
            refused = NotPermitted(f"you may not {verb}")
            raise AccessRefused(NotAllowed(str(refused))) from refused

    api.before = refuse
    (pool,) = viewer.pools.pools()
    assert [each.expires_in_seconds for each in pool.resources] == [0.0]
    assert [each.name for each in viewer.opened.members.members()] == ["a"]
    with pytest.raises(AccessRefused, match="you may not update"):
        remove_resources(viewer.members, "T", ["a"])


def leave_half_gone(api: MadeUpApi, process: Process) -> None:
    def kill(at: int) -> None:
        if api.asked[at] == ("delete", "u"):
            raise Killed

    api.before = kill
    with pytest.raises(Killed):
        process.pools.delete_pool("U", force=False)
    api.before = lambda at: None


@pytest.mark.parametrize(
    "error", [CorruptState("odd"), InvalidRequest("odd"), BackendUnreachable("busy")], ids=repr
)
def test_an_empty_list_counts_where_nobody_says_at_once_whether_its_namespace_is_there(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    api = MadeUpApi()
    process = Process(api, manual_clock.clock)

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(api, "get", fail)
    assert process.pools.pools() == ()
    error = NoNamespace(InvalidRequest("there is none"))
    with pytest.raises(NoNamespace):
        process.pools.pools()
