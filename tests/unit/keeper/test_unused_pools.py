"""Pools that were made for work, and whose makers have died: whoever notices removes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.engines.values import ValueChange
from leasectl.errors import StateUnwritable
from leasectl.keeper import unused_pools
from leasectl.keeper.log import Log
from leasectl.keeper.unused_pools import UnusedPools
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.once.work import Work, work_of
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.made_pools import MadePool, MadePools
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, this_process
from leasectl.system.process_ends import ProcessEnds
from tests.kit.desk import Desk
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


def test_what_could_not_be_removed_is_tried_again_after_a_pause_and_not_before(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(1)
    dead = this_process()._replace(start_time=1)  # its pid is another's by now
    service, clock, made = desk.service, desk.time.clock, MadePools(desk.state)
    with desk.state.transaction():
        made.keep(MadePool(service.backend_url, service.settings, "T", dead))
    ends = ProcessEnds(10)
    ends.follow([dead])
    log = Log(str(tmp_path / "keeper.log"), clock)
    unused = UnusedPools(service, lambda: service, ends, clock=clock, log=log)
    tried: list[str] = []

    def refuse(backend: object, pool_type: str) -> bool:
        tried.append(pool_type)
        raise StateUnwritable("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(unused_pools, "remove_unused", refuse)
        again = clock.elapsed() + 1
        assert unused.go() == [again]
        assert unused.go() == [again]
        assert tried == ["T"]
    desk.time.advance(1)
    assert unused.go() == [None]
    assert desk.service.pools.pools() == ()
    assert made.all() == []
    said = (tmp_path / "keeper.log").read_text()
    assert "can't remove pool T: no space left" in said
    assert said.endswith("pool T is gone, or others use it\n")
    ends.close()


@pytest.mark.parametrize("was_there", [True, False])
def test_of_one_on_a_server_that_is_not_there_it_may_only_not_be_there_yet(
    desk: Desk, hosts: Hosts, work: Work, tmp_path: Path, was_there: bool
) -> None:
    made, clock = MadePools(desk.state), desk.time.clock
    if not was_there:
        hosts.access.pools.delete_pool(work.pool_type, force=True)
    service = desk.as_caller(desk.caller, hosts.url)
    with desk.state.transaction():
        dead = this_process()._replace(start_time=1)
        made.keep(MadePool(hosts.url, service.settings, work.pool_type, dead))
    ends, log = ProcessEnds(10), Log(str(tmp_path / "keeper.log"), clock)
    ends.follow([dead])

    def open_service() -> Service:  # in a thread, which has a connection of its own
        return desk.open(State.open(str(desk.directory)), url=hosts.url)

    unused = UnusedPools(service, open_service, ends, clock=clock, log=log)
    assert unused.go() == [None]
    fd = unused.fd
    assert fd is not None
    eventually(lambda: is_readable(fd, 0), what="a thread has asked")
    unused.take_outcomes()
    assert (made.all() == []) is was_there
    ends.close()


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
