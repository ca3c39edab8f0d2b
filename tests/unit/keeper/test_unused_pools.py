"""Pools that were made for work, and whose makers have died: whoever notices removes them."""

from __future__ import annotations

import pytest

from leasectl.engines.values import ValueChange
from leasectl.model import Request
from leasectl.once.work import Work, work_of
from leasectl.state import keeper_process
from leasectl.state.made_pools import MadePool, MadePools
from leasectl.system.process import identify
from tests.kit.hosts import Hosts
from tests.kit.hosts import hosts as hosts
from tests.kit.support import Cli, eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once


@pytest.fixture
def work(hosts: Hosts) -> Work:
    """A work whose pool and round are there."""
    work = work_of("k", [])
    hosts.pool(work.pool_type, pool_type=work.pool_type)
    round_of_it = ValueChange(f"once/round/{work.digest}", b"{}")
    assert hosts.access.backend.values.change([round_of_it])
    return work


def leave(cli: Cli, work: Work) -> None:
    """Have a process of this machine end that was to see to the work's pool."""
    process = cli.spawn(["sleep", "1000"])
    with cli.service(backend=cli.env["LEASECTL_BACKEND"]) as service, service.state.transaction():
        made = MadePool(
            service.backend_url, service.settings, work.pool_type, identify(process.pid)
        )
        MadePools(service.state).keep(made)
        keeper_process.wake(service.state)
    process.kill()


def test_the_keeper_removes_one_with_its_round(hosts: Hosts, work: Work) -> None:
    leave(hosts.new(), work)
    eventually(lambda: hosts.access.pools.pools() == ())
    assert hosts.access.backend.values.read("") == ()


def test_the_keeper_leaves_one_to_those_who_use_it(hosts: Hosts, work: Work) -> None:
    hosts.access.acquire("another", Request(work.pool_type, ttl_seconds=60.0))
    cli = hosts.new()
    leave(cli, work)
    eventually(lambda: cli.query("SELECT key FROM value") == [])
    assert hosts.held(work.pool_type) == [work.pool_type]
    assert len(hosts.access.backend.values.read("")) == 1
    eventually(lambda: cli.keepers() == [])


def test_status_removes_one_whose_machine_is_gone(hosts: Hosts, work: Work) -> None:
    hosts.new().ok("status")
    assert hosts.access.pools.pools() == ()
    assert hosts.access.backend.values.read("") == ()
