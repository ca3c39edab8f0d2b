"""A lease in etcd that is held back before anything starts under it, and then ends."""

from __future__ import annotations

import os
import signal

import pytest

from tests.kit.hosts import Hosts
from tests.kit.story import story_of
from tests.kit.support import Cli, Started, stop
from tests.kit.waits import eventually

LOST = 79
# So that a busy machine has time to renew it.
LONG = ("--start-jitter", "3660d", "--ttl", "5s")


@pytest.fixture
def command(hosts: Hosts) -> tuple[Cli, Started]:
    """One that holds a lease back, and whose it is."""
    hosts.pool("T--0")
    cli = hosts.new()
    started = cli.start("run", "T", *LONG, "--", "touch", "started")
    assert started.process.stderr is not None
    assert ": start in " in started.process.stderr.readline()
    return cli, started


def assert_nothing_came_of_it(hosts: Hosts, cli: Cli, by: str) -> None:
    def ends() -> list[str]:
        return [each.by for each in hosts.access.events.read() if each.kind == "released"]

    assert not (cli.cwd / "started").exists()
    cli.ok("status")  # whoever comes next has the keeper put right what the dead have left
    eventually(lambda: ends() == [by])
    assert story_of(hosts.access.events.read()) == ([], {}, set())


def test_a_signal_gives_it_back_at_once(hosts: Hosts, command: tuple[Cli, Started]) -> None:
    cli, started = command
    started.signal(signal.SIGTERM)
    finished = started.finish()
    assert (finished.code, finished.out, hosts.held()) == (-signal.SIGTERM, "", [])
    assert_nothing_came_of_it(hosts, cli, "run")


def test_it_is_free_after_the_ttl_when_all_on_its_machine_are_killed(
    hosts: Hosts, command: tuple[Cli, Started]
) -> None:
    cli, started = command
    stop(started.pid, cli.state_dir)  # or it would have another keeper started
    for keeper in cli.keepers():
        os.kill(keeper, signal.SIGKILL)
    started.kill()
    eventually(lambda: hosts.held() == [])
    assert_nothing_came_of_it(hosts, cli, "ttl")


def test_taken_by_force_it_ends_and_is_free(hosts: Hosts, command: tuple[Cli, Started]) -> None:
    cli, started = command
    hosts.new().ok("release", "--names", "T--0", "--force")
    finished = started.finish()
    assert (finished.code, finished.out, finished.err.count("\n")) == (LOST, "", 1)
    eventually(lambda: hosts.held() == [])
    assert_nothing_came_of_it(hosts, cli, "force")
