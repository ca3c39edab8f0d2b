"""A name that ``pool apply`` no longer lists while it is held: it leaves with its release."""

from __future__ import annotations

import json

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once


def apply(cli: Cli, *names: str) -> str:
    text = json.dumps({"resources": [{"type": "T", "names": names}]})
    (cli.cwd / "pools.json").write_text(text)
    return cli("pool", "apply", "-f", "pools.json").err


def test_a_busy_pool_loses_the_name_although_others_wait(cli: Cli) -> None:
    apply(cli, "acc-1", "acc-2")
    first = cli("acquire", "T", "--name", "acc-1").handle
    second = cli("acquire", "T").handle
    waiters = [cli.start("acquire", "T", "-w", "10m", "--output", "names") for _ in range(3)]
    eventually(lambda: len(cli.waiting()) == 3, what="three wait")
    assert "to leave on release" in apply(cli, "acc-2")
    assert "leaves" in cli.ok("status", "--wide")
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    assert [each["membership"]["leaves"] for each in pool["resources"][:1]] == [True]
    cli.ok("release", first)
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    assert [each["name"] for each in pool["resources"]] == ["acc-2"]
    cli.ok("release", second)
    while waiters:
        eventually(lambda: any(each.process.poll() is not None for each in waiters))
        done = next(each for each in waiters if each.process.poll() is not None)
        waiters.remove(done)
        assert done.finish().out == "acc-2\n"
        cli.ok("release", "--names", "acc-2")
