"""``pool remove --force``: nobody gets a name added again while its old command still runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import Hosts, Script
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

LOST = 79
# Ends only when it may.
SLOW = "trap 'say told; await end; exit 0' TERM; say begin; while :; do sleep 0.02; done"
ENGINES = ["local", "etcd"]


@pytest.fixture(params=ENGINES)
def pool(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """A state directory on a pool of one, on each engine."""
    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        hosts = Hosts(server.endpoints[0], tmp_path)
        cli.env["LEASECTL_BACKEND"] = hosts.url
    cli.ok("pool", "create", "T", "--names", "a")
    yield cli
    cli.close()
    if request.param == "etcd":
        hosts.close()


def start(cli: Cli, script: Script) -> Started:
    run = cli.start("run", "-t", "T", "--ttl", "5m", "--", str(script.path))
    script.wait_for("begin")
    return run


def test_a_name_added_again_is_granted_when_the_old_command_has_ended(pool: Cli) -> None:
    script = Script(pool.cwd, SLOW)
    run = start(pool, script)
    removed = pool("pool", "remove", "T", "--names", "a", "--force")
    assert removed.code == 0
    script.wait_for("told")
    pool.ok("pool", "add", "T", "--names", "a")
    assert pool("acquire", "-t", "T", "-w", "0").code == 75
    script.tell("end")
    assert run.finish().code == LOST
    assert pool.ok("acquire", "-t", "T", "-w", "10m", "--output", "names") == "a\n"


def test_a_name_that_is_not_added_again_goes_when_the_old_command_has_ended(pool: Cli) -> None:
    script = Script(pool.cwd, SLOW)
    run = start(pool, script)
    pool.ok("pool", "remove", "T", "--names", "a", "--force")
    script.wait_for("told")
    assert "T" in pool.ok("pool", "list")
    script.tell("end")
    assert run.finish().code == LOST
    eventually(lambda: pool("pool", "add", "T", "--names", "a").code == 0)
    assert pool.ok("acquire", "-t", "T", "-w", "0", "--output", "names") == "a\n"


def test_what_is_free_or_held_by_nothing_that_runs_goes_at_once(cli: Cli) -> None:
    cli.pool("T", "a", "b")
    cli.ok("acquire", "-t", "T", "--name", "a")
    removed = cli("pool", "remove", "T", "--names", "a,b", "--force")
    assert removed.code == 0
    assert 'removed from pool "T": ' in removed.err
    assert cli.query("SELECT name FROM resource") == []


def test_a_name_of_another_pool_leaves_all_as_it_is(cli: Cli) -> None:
    cli.pool("T", "a")
    cli.pool("U", "b")
    handle = cli.ok("acquire", "-t", "T").strip()
    assert cli("pool", "remove", "T", "--names", "a,b", "--force").code == 66
    assert cli.ok("cat", "--handle", handle) == "a\n"
    assert cli("pool", "remove", "V", "--names", "a", "--force").code == 66
