"""Pools that were made for work, and whose makers have died: whoever notices removes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.engines.values import ValueChange
from leasectl.errors import StateUnwritable
from leasectl.keeper import unused_pools
from leasectl.keeper.log import Log
from leasectl.keeper.unused_pools import UnusedPools
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.once.work import Work, work_of
from leasectl.state import keeper_process
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.poll import is_readable
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.hosts import Hosts
from tests.kit.hosts import hosts as hosts
from tests.kit.made_up_server import URL, Server
from tests.kit.made_up_server import server as server
from tests.kit.support import Cli
from tests.kit.waits import eventually, wait_readable

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once

DEAD = this_process()._replace(start_time=1)  # its pid is another's by now


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


@pytest.fixture
def left_by_the_dead(desk: Desk, log: Path) -> Iterator[Callable[[Service, str], UnusedPools]]:
    """Has a pool left by somebody who is dead; returns who sees to it."""
    ends = ProcessEnds(10)
    ends.follow([DEAD])

    def left(service: Service, pool_type: str) -> UnusedPools:
        url, clock = service.backend_url, desk.time.clock
        with desk.state.transaction():
            MadePools(desk.state).keep(MadePool(url, service.settings, pool_type, DEAD))
        return UnusedPools(service, ends, Log(str(log), clock))

    yield left
    ends.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


def heard(unused: UnusedPools) -> None:
    """Wait for what a thread has to say, and take it."""
    assert unused.fd is not None
    wait_readable(unused.fd)
    unused.take_outcomes()


def test_what_could_not_be_removed_is_tried_again_after_a_pause_and_not_before(
    desk: Desk,
    left_by_the_dead: Callable[[Service, str], UnusedPools],
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk.pool(1)
    unused = left_by_the_dead(desk.service, "T")
    tried: list[str] = []

    def refuse(backend: object, pool_type: str) -> bool:
        tried.append(pool_type)
        raise StateUnwritable("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(unused_pools, "remove_unused", refuse)
        again = desk.time.clock.elapsed() + 1
        assert unused.go() == [again]
        assert unused.go() == [again]
        assert tried == ["T"]
    desk.time.advance(1)
    assert unused.go() == [None]
    assert desk.service.pools.pools() == ()
    assert MadePools(desk.state).all() == []
    assert "can't remove pool T: no space left" in log.read_text()
    assert log.read_text().endswith("pool T is gone, or is used again\n")


def test_one_that_is_not_there_is_looked_for_once_more_in_six_seconds(
    desk: Desk, server: Server, left_by_the_dead: Callable[[Service, str], UnusedPools], log: Path
) -> None:
    """It may be that it is just being made, by somebody who has died."""
    unused = left_by_the_dead(desk.as_caller(desk.caller, URL), "V")
    now = desk.time.clock.elapsed()
    assert unused.processes() == [DEAD]
    assert unused.fd is None
    for _ in range(2):
        assert unused.go() == [None]
        heard(unused)
        if MadePools(desk.state).all():
            assert unused.go() == [now + 6]
            desk.time.advance(5.9)
            assert unused.go() == [now + 6]
            assert not log.exists()
            desk.time.advance(0.1)
    assert unused.go() == []
    assert unused.processes() == []
    assert log.read_text().endswith("pool V is gone, or is used again\n")


def test_one_that_is_there_goes_at_once_with_what_is_known_of_its_round(
    desk: Desk, server: Server, left_by_the_dead: Callable[[Service, str], UnusedPools]
) -> None:
    assert server.values.change([ValueChange("once/round/V", b"{}")])
    server.pools.create_pool("once.V", ["once.V"])
    unused = left_by_the_dead(desk.as_caller(desk.caller, URL), "once.V")
    assert unused.go() == [None]
    heard(unused)
    assert unused.go() == []
    assert [pool.type for pool in server.pools.pools()] == ["T"]
    assert server.values.read("") == ()


def test_one_that_somebody_of_here_holds_is_left_until_that_is_released(
    desk: Desk, left_by_the_dead: Callable[[Service, str], UnusedPools]
) -> None:
    desk.pool(1)
    handle = desk.acquire()
    unused = left_by_the_dead(desk.service, "T")
    assert unused.go() == []
    assert len(MadePools(desk.state).all()) == 1
    release(desk.service, whole(handle))
    assert unused.go() == [None]
    assert desk.service.pools.pools() == ()


@pytest.mark.parametrize("was_there", [True, False])
def test_one_on_a_server_is_forgotten_once_it_is_gone_but_not_if_it_may_be_there_later(
    desk: Desk,
    hosts: Hosts,
    work: Work,
    left_by_the_dead: Callable[[Service, str], UnusedPools],
    was_there: bool,
) -> None:
    if not was_there:
        hosts.access.pools.delete_pool(work.pool_type, force=True)
    unused = left_by_the_dead(desk.as_caller(desk.caller, hosts.url), work.pool_type)
    assert unused.go() == [None]
    fd = unused.fd
    assert fd is not None
    eventually(lambda: is_readable(fd, 0), what="a thread has asked")
    unused.take_outcomes()
    assert (MadePools(desk.state).all() == []) is was_there


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
